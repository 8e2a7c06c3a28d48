"""Attention and a recurrent state side by side in one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tokenline.cache.base import AttentionCache
from tokenline.cache.recurrent import RecurrentCache
from tokenline.cache.state import CacheState


class PairCache:
    """Both see the same tokens of the same rows; whatever is done to the one is done to the other."""

    def __init__(self, attention: AttentionCache, recurrent: RecurrentCache) -> None:
        self.attention, self.recurrent = attention, recurrent

    @property
    def length(self) -> int:
        return self.attention.length

    @property
    def rows(self) -> int:
        return self.attention.rows

    @property
    def nbytes(self) -> int:
        return self.attention.nbytes + self.recurrent.nbytes

    def extend(self, other: Self) -> None:
        self.attention.extend(other.attention)
        self.recurrent.extend(other.recurrent)

    def filter(self, keep: Sequence[int]) -> None:
        self.attention.filter(keep)
        self.recurrent.filter(keep)

    def extract(self, row: int) -> Self:
        return type(self)(self.attention.extract(row), self.recurrent.extract(row))

    def segment(self, start: int) -> Self:
        return type(self)(self.attention.segment(start), self.recurrent.segment(start))

    def after(self, earlier: Sequence[Self]) -> Self:
        return type(self)(
            self.attention.after([each.attention for each in earlier]),
            self.recurrent.after([each.recurrent for each in earlier]),
        )

    def state(self) -> CacheState:
        return self.attention.state().joined(self.recurrent.state())

    def restored(self, state: CacheState) -> Self:
        attention, recurrent = state.parted()
        return type(self)(self.attention.restored(attention), self.recurrent.restored(recurrent))

    def projected_bytes(self, tokens: int) -> int:
        return self.attention.projected_bytes(tokens) + self.recurrent.projected_bytes(tokens)

    def return_to(self, length: int) -> bool:
        # One of them may not have been reached: each goes back from where it is.
        return self.attention.return_to(length) and self.recurrent.return_to(length)

    def trim(self, count: int) -> bool:
        return self.recurrent.can_rewind(count) and self.attention.trim(count) and self.recurrent.trim(count)

    def rewind(self, count: int) -> bool:
        return (
            self.recurrent.can_rewind(count) and self.attention.rewind(count) and self.recurrent.rewind(count)
        )

    def copy(self) -> Self:
        return type(self)(self.attention.copy(), self.recurrent.copy())
