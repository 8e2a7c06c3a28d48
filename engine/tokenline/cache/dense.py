"""Keys and values of every token: the cache of full attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from tokenline.ops.base import Array, Ops

# Buffers grow in steps of this many tokens. The capacity is a function of the length alone, so that a batch that
# was filled in one go and one that was restored from a shorter state have the same strides, hence the same kernels.
GROWTH = 256


def capacity(length: int) -> int:
    return -(-length // GROWTH) * GROWTH


class DenseCache:
    """Buffers [B, Hkv, capacity, D], filled to `length`; row b's first `padding[b]` tokens are padding."""

    def __init__(self, ops: Ops, heads: int, size: int) -> None:
        self._ops = ops
        self._heads, self._size = heads, size
        self.length = 0
        self.padding = [0]
        self._keys: Array | None = None
        self._values: Array | None = None

    @property
    def rows(self) -> int:
        return len(self.padding)

    @property
    def nbytes(self) -> int:
        return 0 if self._keys is None else 2 * self._keys.nbytes

    def update(self, keys: Array, values: Array) -> tuple[Array, Array]:
        start, self.length = self.length, self.length + keys.shape[2]
        self._keys = held_keys = self._resized(self._keys, start, keys.shape[0])
        self._values = held_values = self._resized(self._values, start, keys.shape[0])
        held_keys[:, :, start : self.length] = keys
        held_values[:, :, start : self.length] = values
        return held_keys[:, :, : self.length], held_values[:, :, : self.length]

    def _resized(self, buffer: Array | None, filled: int, rows: int) -> Array:
        if buffer is not None and buffer.shape[2] == capacity(self.length):
            return buffer
        grown = self._ops.zeros((rows, self._heads, capacity(self.length), self._size))
        if buffer is not None:
            grown[:, :, :filled] = buffer[:, :, :filled]
            self._ops.counters.bytes_copied += grown.nbytes // grown.shape[2] * filled
        return grown

    def mask(self, tokens: int) -> Array | str | None:
        if not any(self.padding):
            return None if tokens == 1 else "causal"
        keys = np.arange(self.length + tokens)
        queries = np.arange(self.length, self.length + tokens)
        seen = (keys[None, None] <= queries[None, :, None]) & (
            keys[None, None] >= np.asarray(self.padding)[:, None, None]
        )
        # A padded query sees itself, so that its softmax is defined; nothing reads what it says.
        seen |= keys[None, None] == queries[None, :, None]
        return self._ops.array(seen[:, None])

    def positions(self, tokens: int) -> int | np.ndarray:
        if not any(self.padding):
            return self.length
        steps = np.arange(self.length, self.length + tokens)
        return np.maximum(steps[None] - np.asarray(self.padding)[:, None], 0)

    def extend(self, other: Self) -> None:
        length = max(self.length, other.length)
        sides = [side._right_aligned(length) for side in (self, other)]
        self.padding = [p + length - side.length for side in (self, other) for p in side.padding]
        self.length = length
        self._keys = self._ops.concat([keys for keys, _ in sides], 0)
        self._values = self._ops.concat([values for _, values in sides], 0)
        self._ops.counters.bytes_copied += self.nbytes

    def _right_aligned(self, length: int) -> tuple[Array, Array]:
        if self._keys is None or self._values is None:
            raise ValueError("an empty cache has no rows to join")
        if length == self.length and capacity(length) == self._keys.shape[2]:
            return self._keys, self._values
        aligned = []
        for buffer in (self._keys, self._values):
            wide = self._ops.zeros((self.rows, self._heads, capacity(length), self._size))
            wide[:, :, length - self.length : length] = buffer[:, :, : self.length]
            aligned.append(wide)
        return aligned[0], aligned[1]

    def filter(self, keep: Sequence[int]) -> None:
        if self._keys is None or self._values is None:
            raise ValueError("an empty cache has no rows to leave")
        spare = min(self.padding[row] for row in keep)
        length = self.length - spare
        narrowed = []
        for buffer in (self._keys, self._values):
            chosen = self._ops.take(buffer, keep)
            if spare:
                moved = self._ops.zeros((len(keep), self._heads, capacity(length), self._size))
                moved[:, :, :length] = chosen[:, :, spare : self.length]
                chosen = moved
            narrowed.append(chosen)
        self._keys, self._values = narrowed
        self.padding = [self.padding[row] - spare for row in keep]
        self.length = length
        self._ops.counters.bytes_copied += self.nbytes

    def extract(self, row: int) -> Self:
        start = self.padding[row]
        return self._part(slice(row, row + 1), start, self.length)

    def copy(self) -> Self:
        made = self._part(slice(None), 0, self.length)
        made.padding = list(self.padding)
        return made

    def _part(self, rows: slice, start: int, stop: int) -> Self:
        made = type(self)(self._ops, self._heads, self._size)
        made.length = stop - start
        if self._keys is not None and self._values is not None:
            made._keys = self._ops.copy(self._keys[rows, :, start:stop])
            made._values = self._ops.copy(self._values[rows, :, start:stop])
        return made

    def trim(self, count: int) -> bool:
        if count < 0 or count > self.length - max(self.padding):
            return False
        self.length -= count
        return True

    def rewind(self, count: int) -> bool:
        return self.trim(count)  # nothing is overwritten here, so a cursor moved back is exact
