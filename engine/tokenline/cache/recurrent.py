"""What a recurrent layer carries on: its convolutions' last inputs and its state, of constant size."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Self

from tokenline.cache.state import CacheState
from tokenline.ops.base import Array, Ops

# Steps that can be undone exactly: the states before them are kept, and counted in `nbytes`.
UNDO = 2


class RecurrentCache:
    """`arrays` [B, …] are what the layer left, None before its first tokens; rows need no padding.

    A state cannot be shortened. It can be put back to what it was before one of the last `UNDO` updates.
    """

    padding = (0,)

    def __init__(self, ops: Ops, undo: int = UNDO) -> None:
        self._ops = ops
        self.length = 0
        self.arrays: tuple[Array, ...] | None = None
        self._before: deque[tuple[int, tuple[Array, ...] | None]] = deque(maxlen=undo)

    @property
    def rows(self) -> int:
        return 1 if self.arrays is None else self.arrays[0].shape[0]

    @property
    def nbytes(self) -> int:
        kept = [self.arrays, *(arrays for _, arrays in self._before)]
        return sum(array.nbytes for arrays in kept for array in arrays or ())

    def projected_bytes(self, tokens: int) -> int:
        if self.arrays is None:
            raise ValueError("an empty cache does not know what its state takes")
        state = sum(array.nbytes // array.shape[0] for array in self.arrays)
        return state * (1 + (self._before.maxlen or 0))

    def update(self, tokens: int, *arrays: Array) -> None:
        """The state after `tokens` more. New arrays: what was given before is never written into."""
        self._before.append((self.length, self.arrays))
        self.length += tokens
        self.arrays = arrays

    def extend(self, other: Self) -> None:
        if self.arrays is None or other.arrays is None:
            raise ValueError("an empty cache has no rows to join")
        self.arrays = tuple(self._ops.concat(pair, 0) for pair in zip(self.arrays, other.arrays, strict=True))
        self.length = max(self.length, other.length)
        self._before.clear()
        self._ops.counters.bytes_copied += self.nbytes

    def filter(self, keep: Sequence[int]) -> None:
        if self.arrays is None:
            raise ValueError("an empty cache has no rows to leave")
        self.arrays = tuple(self._ops.take(array, keep) for array in self.arrays)
        self._before.clear()
        self._ops.counters.bytes_copied += self.nbytes

    def extract(self, row: int) -> Self:
        return self._part(slice(row, row + 1))

    def copy(self) -> Self:
        return self._part(slice(None))

    def _part(self, rows: slice) -> Self:
        made = type(self)(self._ops, self._before.maxlen or 0)
        made.length = self.length
        if self.arrays is not None:
            made.arrays = tuple(self._ops.copy(array[rows]) for array in self.arrays)
        return made

    def segment(self, start: int) -> Self:
        return self.copy()

    def after(self, earlier: Sequence[Self]) -> Self:
        return self.copy()

    def state(self) -> CacheState:
        return CacheState((self.length,), self.arrays or ())

    def restored(self, state: CacheState) -> Self:
        made = type(self)(self._ops, self._before.maxlen or 0)
        [made.length] = state.counts
        made.arrays = state.arrays or None
        return made

    def return_to(self, length: int) -> bool:
        return self.rewind(self.length - length)

    def trim(self, count: int) -> bool:
        return self.rewind(count)

    def can_rewind(self, count: int) -> bool:
        return count == 0 or any(length == self.length - count for length, _ in self._before)

    def rewind(self, count: int) -> bool:
        if count == 0:
            return True
        for index, (length, arrays) in enumerate(self._before):
            if length == self.length - count:
                self.length, self.arrays = length, arrays
                while len(self._before) > index:
                    self._before.pop()
                return True
        return False
