"""What a layer cache is made of, apart from what its layer says of it."""

from __future__ import annotations

from dataclasses import dataclass

from tokenline.ops.base import Array


@dataclass(frozen=True)
class CacheState:
    """Of a lone row: `LayerCache.restored` makes the same cache of it, wherever it was in between."""

    counts: tuple[int, ...]
    arrays: tuple[Array, ...]

    def joined(self, other: CacheState) -> CacheState:
        """Both as one, to be taken apart by `parted`."""
        sizes = (len(self.counts), len(self.arrays))
        return CacheState((*sizes, *self.counts, *other.counts), self.arrays + other.arrays)

    def parted(self) -> tuple[CacheState, CacheState]:
        counts, arrays, *rest = self.counts
        return (
            CacheState(tuple(rest[:counts]), self.arrays[:arrays]),
            CacheState(tuple(rest[counts:]), self.arrays[arrays:]),
        )
