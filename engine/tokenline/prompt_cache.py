"""Prefix reuse: states that prefill computed, kept by the piece, the least recently used given up first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokenline.cache import LayerCache
from tokenline.decode.prefill_plan import Piece, PrefillPlan

# Where a piece's state is found: under what came before it, by its tokens.
Path = tuple[str, *tuple[bytes, ...]]


@dataclass(frozen=True)
class _Entry:
    """What one piece left in every layer: the state of its tokens, or the whole state up to its end where a kind of
    layer has no other."""

    segments: list[LayerCache]
    nbytes: int


class PromptCache:
    """A tree of pieces: a prompt's path in it are the pieces of its cold plan, so that what is found was computed by
    exactly the forwards that a cold run would run. Prompts that begin alike share what they share. A hit copies and
    consumes nothing.

    The limit covers the stored states and the rows that are alive: what live rows need is taken from the oldest states.
    A piece is never used without those before it, and is given up before them. `namespace` separates what must not be
    shared: checkpoint and template.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        # The least recently used first. What a path goes through is always younger than what lies below it.
        self._entries: OrderedDict[Path, _Entry] = OrderedDict()
        self.nbytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        """Pieces that are kept."""
        return len(self._entries)

    def adopt(self, namespace: str, prompt: Sequence[int], plan: PrefillPlan) -> tuple[int, list[LayerCache]]:
        """How many of the prompt's tokens the stored pieces cover, and a copy of their state; (0, []) for a miss."""
        found: list[Path] = []
        count = 0
        for piece, path in _paths(namespace, prompt, plan.storable_pieces()):
            if path not in self._entries:
                break
            found.append(path)
            count = piece.stop
        if not found:
            self.misses += 1
            return 0, []
        self._touch(found)
        *earlier, last = [self._entries[path].segments for path in found]
        self.hits += 1
        return count, [
            segment.after([segments[layer] for segments in earlier]) for layer, segment in enumerate(last)
        ]

    def store(
        self,
        namespace: str,
        prompt: Sequence[int],
        plan: PrefillPlan,
        piece: Piece,
        caches: Sequence[LayerCache],
        live_bytes: int,
    ) -> int:
        """Keep what the piece, the last that ran, has left; returns the bytes copied, 0 where it was kept already, does
        not fit, or follows one that is no longer there. The caches must hold the tokens up to the piece's end and not
        one more: state is never ahead of its key."""
        for cache in caches:
            if cache.length != piece.stop:
                raise ValueError(
                    f"a layer holds {cache.length} tokens of state where its key has {piece.stop}: "
                    f"{abs(cache.length - piece.stop)} too {'many' if cache.length > piece.stop else 'few'}"
                )
        upto = [each for each in plan.storable_pieces() if each.stop <= piece.stop]
        *before, path = [path for _, path in _paths(namespace, prompt, upto)]
        if path in self._entries or not all(each in self._entries for each in before):
            self._touch([each for each in (*before, path) if each in self._entries])
            return 0
        segments = [cache.segment(piece.start) for cache in caches]
        entry = _Entry(segments, sum(segment.nbytes for segment in segments))
        self._entries[path] = entry
        self.nbytes += entry.nbytes
        self._touch([*before, path])
        self.make_room(live_bytes)
        return entry.nbytes if path in self._entries else 0

    def _touch(self, paths: Sequence[Path]) -> None:
        for path in reversed(paths):
            self._entries.move_to_end(path)

    def make_room(self, live_bytes: int) -> None:
        """Drop the least recently used until states and live rows fit the limit."""
        while self._entries and self.nbytes + live_bytes > self.limit_bytes:
            _, dropped = self._entries.popitem(last=False)
            self.nbytes -= dropped.nbytes

    def clear(self) -> None:
        self._entries.clear()
        self.nbytes = 0


def _paths(namespace: str, prompt: Sequence[int], pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Path]]:
    path: Path = (namespace,)
    for piece in pieces:
        path = (*path, np.asarray(prompt[piece.start : piece.stop], dtype=np.int64).tobytes())
        yield piece, path
