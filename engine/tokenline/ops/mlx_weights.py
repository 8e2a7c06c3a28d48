"""Matrices in the layouts that MLX's kernels take. Imported after the BLAS is bound (`blas`)."""

from __future__ import annotations

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


class ColumnWeight:
    """A dense matrix [N, K] kept as [K, N], which a CPU's BLAS multiplies one row by 1.3 times faster."""

    def __init__(self, matrix: mx.array) -> None:
        self.columns = mx.contiguous(matrix.T)
        mx.eval(self.columns)

    @property
    def nbytes(self) -> int:
        return self.columns.nbytes
