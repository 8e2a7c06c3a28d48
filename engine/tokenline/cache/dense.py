"""Keys and values of every token: the cache of full attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from tokenline.cache.quantized import QuantizedStorage
from tokenline.cache.state import CacheState
from tokenline.ops.base import Array, Ops

# Buffers grow in steps of this many tokens. Their layout is a function of the length alone, so that a batch that was
# filled in one go and one that was restored from a shorter state have the same strides, hence the same kernels.
GROWTH = 256


def capacity(length: int) -> int:
    return -(-length // GROWTH) * GROWTH


class DenseCache:
    """Buffers [B, H, capacity, size], one for each of `sizes`, filled to `length`; what stands for them in fewer bits
    where `ops.precision.kv_bits` says so.

    Row b's first `padding[b]` tokens are padding. Token i lies at `i - base_of(length)`: a subclass that forgets old
    tokens says from which on they are kept, and from which on they are seen.
    """

    def __init__(self, ops: Ops, heads: int, *sizes: int) -> None:
        self._ops = ops
        self._heads = heads
        self._sizes = self._entries(sizes)
        bits = ops.precision.kv_bits
        self._storage = None if bits is None else QuantizedStorage(ops, self._sizes, bits)
        self.length = 0
        self.padding = [0]
        self._buffers: list[Array] = []
        self._base = 0  # the token at the buffers' first place
        # The first token whose state is there: a batch may have been made of rows that kept less.
        self._kept = 0

    @staticmethod
    def _entries(sizes: tuple[int, ...]) -> tuple[int, ...]:
        """One size is that of keys and of values."""
        return sizes if len(sizes) > 1 else sizes * 2

    @property
    def kind(self) -> object:
        return type(self)

    @property
    def rows(self) -> int:
        return len(self.padding)

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._buffers)

    def projected_bytes(self, tokens: int) -> int:
        if not self._buffers:
            raise ValueError("an empty cache does not know what a token takes")
        token = sum(buffer.nbytes // (buffer.shape[0] * buffer.shape[2]) for buffer in self._buffers)
        return token * capacity(self._most_places(tokens))

    def _most_places(self, tokens: int) -> int:
        """How many tokens are kept at most on the way to so many."""
        return tokens

    def base_of(self, length: int) -> int:
        """The first token that a cache of so many tokens keeps a place for."""
        return 0

    def seen_from(self, position: int) -> int:
        """The first token that the query at this position sees in any row."""
        return 0

    def seen_by_rows(self, queries: np.ndarray) -> np.ndarray:
        """The first token that each of the queries sees in each row, [B, T], or [1, T] where all rows see alike."""
        return np.asarray([[self.seen_from(int(query)) for query in queries]])

    def update(self, *arrays: Array) -> Sequence[Array]:
        start, stop = self.length, self.length + arrays[0].shape[2]
        base, first = self.base_of(start), self.seen_from(start)
        self.length = stop
        storage = self._storage
        stored = arrays if storage is None else storage.stored(arrays)
        if not self._buffers:
            self._buffers = self._empty(stored, arrays[0].shape[0], capacity(stop - base))
            self._base = base
        else:
            self._lay_out(start, base, stop)
        for buffer, array in zip(self._buffers, stored, strict=True):
            buffer[:, :, start - base : stop - base] = array
        seen = [buffer[:, :, first - base : stop - base] for buffer in self._buffers]
        if self.base_of(stop) != base:
            self._lay_out(stop, self.base_of(stop), stop)
        return seen if storage is None else storage.seen(seen)

    def _empty(self, arrays: Sequence[Array], rows: int, tokens: int) -> list[Array]:
        """Buffers for so many tokens of so many rows of such arrays."""
        return [self._ops.zeros((rows, each.shape[1], tokens, each.shape[3]), like=each) for each in arrays]

    def _lay_out(self, filled: int, base: int, length: int) -> None:
        """Have room for the tokens from `base` to `length`, of which those before `filled` are there."""
        if self._base == base and self._buffers[0].shape[2] == capacity(length - base):
            return
        grown = self._empty(self._buffers, self.rows, capacity(length - base))
        self._move(self._buffers, grown, slice(None), base, filled, 0)
        self._kept = max(self._kept, max(base, self._base))
        self._buffers, self._base = grown, base

    def _move(
        self, old: Sequence[Array], new: Sequence[Array], rows: slice, base: int, filled: int, shift: int
    ) -> None:
        """Copy the tokens before `filled` to those rows of buffers that begin at `base`, each `shift` further on."""
        start = max(base - shift, self._base)
        for source, target in zip(old, new, strict=True):
            held = source[:, :, start - self._base : filled - self._base]
            target[rows, :, start + shift - base : filled + shift - base] = held
            self._ops.counters.bytes_copied += held.nbytes

    def mask(self, tokens: int) -> Array | str | None:
        first, stop = self.seen_from(self.length), self.length + tokens
        ends = self.seen_by_rows(np.asarray([self.length, stop - 1]))
        if max(self.padding) <= first and (ends == first).all():
            return None if tokens == 1 else "causal"
        keys, queries = np.arange(first, stop), np.arange(self.length, stop)
        seen_from = self.seen_by_rows(queries)[:, :, None]
        seen = (keys[None, None] <= queries[None, :, None]) & (keys[None, None] >= seen_from)
        seen = seen & (keys[None, None] >= np.asarray(self.padding)[:, None, None])
        # A padded query sees itself, so that its softmax is defined; nothing reads what it says.
        seen |= keys[None, None] == queries[None, :, None]
        return self._ops.array(seen[:, None])

    def positions(self, tokens: int) -> int | np.ndarray:
        if not any(self.padding):
            return self.length
        steps = np.arange(self.length, self.length + tokens)
        return np.maximum(steps[None] - np.asarray(self.padding)[:, None], 0)

    def extend(self, other: Self) -> None:
        if not self._buffers or not other._buffers:
            raise ValueError("an empty cache has no rows to join")
        length = max(self.length, other.length)
        base, rows = self.base_of(length), self.rows + other.rows
        joined = self._empty(self._buffers, rows, capacity(length - base))
        shifts = [(side, length - side.length) for side in (self, other)]
        first = 0
        for side, shift in shifts:
            side._move(side._buffers, joined, slice(first, first + side.rows), base, side.length, shift)
            first += side.rows
        self._kept = max(side._kept + shift if side._kept else 0 for side, shift in shifts)
        self.padding = [padding + shift for side, shift in shifts for padding in side.padding]
        self.length, self._base, self._buffers = length, base, joined

    def filter(self, keep: Sequence[int]) -> None:
        if not self._buffers:
            raise ValueError("an empty cache has no rows to leave")
        spare = min(self.padding[row] for row in keep)
        length = self.length - spare
        base = self.base_of(length)
        if spare == 0 and base == self._base:
            self._buffers = [self._ops.take(buffer, keep) for buffer in self._buffers]
            self._ops.counters.bytes_copied += self.nbytes
        else:
            kept = self._empty(self._buffers, len(keep), capacity(length - base))
            for index, row in enumerate(keep):
                one = [buffer[row : row + 1] for buffer in self._buffers]
                self._move(one, kept, slice(index, index + 1), base, self.length, -spare)
            self._buffers = kept
        self._base, self._kept = base, max(self._kept - spare, 0)
        self.padding = [self.padding[row] - spare for row in keep]
        self.length = length

    def extract(self, row: int) -> Self:
        return self._part(slice(row, row + 1), self.padding[row])

    def copy(self) -> Self:
        made = self._part(slice(None), 0)
        made.padding = list(self.padding)
        return made

    def _made(self) -> Self:
        return type(self)(self._ops, self._heads, *self._sizes)

    def _part(self, rows: slice, padding: int) -> Self:
        """Some rows without their first `padding` tokens, as one of that length lies."""
        made = self._made()
        made.length = self.length - padding
        made._base, made._kept = made.base_of(made.length), max(self._kept - padding, 0)
        if self._buffers:
            start = max(made._base + padding, self._base)
            held = [
                buffer[rows, :, start - self._base : self.length - self._base] for buffer in self._buffers
            ]
            made._buffers = [self._ops.copy(each) for each in held]
            made._base = start - padding
        return made

    def segment(self, start: int) -> Self:
        return self._part(slice(None), start)

    def after(self, earlier: Sequence[Self]) -> Self:
        made = self._made()
        parts = (*earlier, self)
        made.length = sum(part.length for part in parts)
        held = zip(*(part._buffers for part in parts), strict=True)
        made._buffers = [self._ops.concat(buffers, 2) for buffers in held]
        self._ops.counters.bytes_copied += made.nbytes
        return made

    def state(self) -> CacheState:
        return CacheState((self.length, self._base, self._kept), tuple(self._buffers))

    def restored(self, state: CacheState) -> Self:
        made = self._made()
        made.length, made._base, made._kept = state.counts
        if len(state.arrays) != len(self._sizes) * (1 if self._storage is None else 3):
            raise ValueError(f"{len(state.arrays)} buffers are not those of this layer")
        made._buffers = list(state.arrays)
        return made

    def return_to(self, length: int) -> bool:
        return self.trim(self.length - length)

    def trim(self, count: int) -> bool:
        if count < 0 or count > self.length - max(self.padding):
            return False
        length = self.length - count
        if self.seen_from(length) < max(self._kept, self._base):
            return False
        self.length = length
        return True

    def rewind(self, count: int) -> bool:
        return self.trim(
            count
        )  # what was overwritten here is kept elsewhere, so a cursor moved back is exact
