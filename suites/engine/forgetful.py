"""The kinds of cache that forget, each by what a query sees by definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tagged_keys import HEADS, SIZE, push

from tokenline.cache import ChunkedCache, WindowCache
from tokenline.ops import Ops


@dataclass(frozen=True)
class Kind:
    """A cache of a size, and the first position that the query at a position of its row sees in that size."""

    cache: type[WindowCache]
    first_seen: Callable[[int, int], int]

    def empty(self, ops: Ops, size: int) -> WindowCache:
        return self.cache(ops, size, HEADS, SIZE)

    def filled(self, ops: Ops, size: int, tags: list[int], piece: int = 10_000) -> WindowCache:
        cache = self.empty(ops, size)
        for start in range(0, len(tags), piece):
            push(ops, cache, [tags[start : start + piece]])
        return cache

    def batch(self, ops: Ops, size: int, rows: list[list[int]]) -> WindowCache:
        batch = self.filled(ops, size, rows[0])
        for row in rows[1:]:
            batch.extend(self.filled(ops, size, row))
        return batch

    def must_see(self, tags: Sequence[int], size: int, first: int = 0) -> list[list[int]]:
        """Of each token from the first on: what it sees, itself the last."""
        return [list(tags[self.first_seen(at, size) : at + 1]) for at in range(first, len(tags))]

    def step(
        self, ops: Ops, cache: WindowCache, size: int, rows: list[list[int]], tags: list[list[int]]
    ) -> None:
        """Appends to the batch and to the plain rows; every row must see what is its own and nothing else."""
        seen = push(ops, cache, tags)
        for row, more, saw in zip(rows, tags, seen, strict=True):
            row += more
            assert saw == self.must_see(row, size, len(row) - len(more))


# Itself and the `window - 1` tokens before it.
WINDOW = Kind(WindowCache, lambda position, window: max(0, position - window + 1))
# Its chunk up to itself: from floor(position / chunk) * chunk.
CHUNKED = Kind(ChunkedCache, lambda position, chunk: position // chunk * chunk)
