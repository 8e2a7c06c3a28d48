"""One compressed vector for every token: the cache of multi-head latent attention."""

from __future__ import annotations

from typing import Self

from tokenline.cache.dense import DenseCache
from tokenline.ops.base import Ops


class LatentCache(DenseCache):
    """One buffer [B, 1, capacity, size]: the latent of keys and values with the rotated part of the keys beside it."""

    def __init__(self, ops: Ops, size: int) -> None:
        super().__init__(ops, 1, size)

    @staticmethod
    def _entries(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return sizes

    def _made(self) -> Self:
        return type(self)(self._ops, self._sizes[0])
