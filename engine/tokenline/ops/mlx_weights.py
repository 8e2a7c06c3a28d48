"""Matrices in the layouts that MLX's kernels take. Imported after the BLAS is bound (`blas`)."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import numpy as np

from tokenline.ops.arrays import QuantizedArray


class PackedWeight:
    """Groups of codes in MLX's affine layout, for quantized_matmul; of several experts below one another, [E, M, …]."""

    def __init__(self, value: QuantizedArray, dtype: Any, experts: int | None = None) -> None:
        self.bits, self.group_size = value.bits, value.group_size
        per_word = 32 // value.bits
        rows, width = value.shape
        codes = value.codes.reshape(rows, width // per_word, per_word).astype(np.uint32)
        shifts = (np.arange(per_word, dtype=np.uint32) * value.bits)[None, None]
        self.words = mx.array(np.bitwise_or.reduce(codes << shifts, axis=-1))
        self.scales = mx.array(value.scales).astype(dtype)
        self.biases = mx.array(value.biases).astype(dtype)
        if experts is not None:
            parts = (self.words, self.scales, self.biases)
            self.words, self.scales, self.biases = (
                part.reshape(experts, -1, part.shape[-1]) for part in parts
            )

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.scales.nbytes + self.biases.nbytes


# So many rows a BLAS multiplies by [N, K] faster than by [K, N]: a batch's step.
_BY_ROWS = range(2, 17)


class ColumnWeight:
    """A dense matrix [N, K] kept as [K, N], which a CPU's BLAS multiplies one row by 1.3 times faster.

    `rows`: the matrix itself where it is kept anyway (a tied head's table): a batch of 8 is multiplied by it in half
    the time (docs/decisions).
    """

    def __init__(self, matrix: mx.array, *, rows: mx.array | None = None) -> None:
        self.columns = mx.contiguous(matrix.T)
        self._rows = rows
        mx.eval(self.columns)

    def product(self, x: mx.array) -> mx.array:
        """x [..., K] -> [..., N]."""
        count = math.prod(x.shape[:-1])
        if self._rows is None or count not in _BY_ROWS:
            return x @ self.columns
        y = mx.contiguous((self._rows @ x.reshape(count, -1).T).T)
        return y.reshape(*x.shape[:-1], -1)

    @property
    def nbytes(self) -> int:
        return self.columns.nbytes
