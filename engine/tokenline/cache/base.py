"""The contract of every kind of layer cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np

from tokenline.cache.state import CacheState
from tokenline.ops.base import Array


class LayerCache(Protocol):
    """One layer's memory for a batch of rows that all end at the same index.

    `trim` and `rewind` return False and change nothing when they cannot remove exactly n tokens.
    """

    @property
    def length(self) -> int:
        """Tokens held by the longest row."""
        ...

    def extend(self, other: Self) -> None:
        """Append other's rows to this batch: one pass over both, and `other` is as it was."""
        ...

    def filter(self, keep: Sequence[int]) -> None:
        """Keep those rows, in that order, and give back padding that no row needs any more."""
        ...

    def extract(self, row: int) -> Self:
        """A copy of one row without its padding."""
        ...

    def segment(self, start: int) -> Self:
        """Of a lone row, a copy of what it keeps of the tokens from `start` on: their state, or the whole state of a
        kind that cannot be cut."""
        ...

    def after(self, earlier: Sequence[Self]) -> Self:
        """The state, a copy, of which this is the last segment and those are all before it, in order."""
        ...

    def state(self) -> CacheState:
        """Of a lone row: what it holds, its own arrays and no copies."""
        ...

    def restored(self, state: CacheState) -> Self:
        """The cache of the same layer that had this state; ValueError for a state that no such cache has."""
        ...

    def projected_bytes(self, tokens: int) -> int:
        """The most that one row takes between forwards on its way to so many tokens, in a batch whose longest row has
        them. Of a cache that holds a token already: what one takes depends on the dtype and the layout."""
        ...

    def return_to(self, length: int) -> bool:
        """Undo what a forward that failed half way has appended; False where the state of then is gone."""
        ...

    def trim(self, count: int) -> bool: ...
    def rewind(self, count: int) -> bool: ...
    def copy(self) -> Self: ...
    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


class AttentionCache(LayerCache, Protocol):
    """Holds something of every token that may still be seen; shorter rows are padded on the left.

    A lone row has no padding and no mask. Caches of one `kind` that have seen the same rows have one mask.
    """

    @property
    def kind(self) -> object: ...

    def update(self, *arrays: Array) -> Sequence[Array]:
        """Append [B, H, T, size] each (keys and values; a latent cache has one) and return what the next queries may
        see, [B, H, S, size] each."""
        ...

    def mask(self, tokens: int) -> Array | str | None:
        """What the next `tokens` queries see, as `Ops.attention` takes it; asked before `update`."""
        ...

    def positions(self, tokens: int) -> int | np.ndarray:
        """Of the next tokens: the first position for a batch without padding, else int [B, T]."""
        ...
