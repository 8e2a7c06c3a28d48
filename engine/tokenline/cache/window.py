"""Keys and values of the last tokens only: the cache of sliding-window attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tokenline.cache.dense import GROWTH, DenseCache
from tokenline.ops.base import Ops

# Tokens kept beyond the window, so that as many decode steps can be rewound exactly.
UNDO = 32


class WindowCache(DenseCache):
    """A query sees itself and the `window - 1` tokens before it.

    The buffers slide in steps of `GROWTH` instead of turning like a ring: what is seen lies in the order of the text,
    nothing is ever overwritten while it may be seen again, and where it lies depends on the length alone.
    """

    def __init__(self, ops: Ops, window: int, heads: int, *sizes: int) -> None:
        super().__init__(ops, heads, *sizes)
        self.window = window

    @property
    def kind(self) -> object:
        return (type(self), self.window)

    def _most_places(self, tokens: int) -> int:
        # The buffers slide when as many tokens as a step lie before what must be kept.
        return min(tokens, self.window - 1 + UNDO + GROWTH - 1)

    def base_of(self, length: int) -> int:
        return max(0, length - self.window + 1 - UNDO) // GROWTH * GROWTH

    def seen_from(self, position: int) -> int:
        return max(0, position - self.window + 1)

    def segment(self, start: int) -> Self:
        return self.copy()

    def after(self, earlier: Sequence[Self]) -> Self:
        return self.copy()

    def _made(self) -> Self:
        return type(self)(self._ops, self.window, self._heads, *self._sizes)
