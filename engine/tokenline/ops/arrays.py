"""Matrices on the host, as a checkpoint holds them and a backend takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tokenline.ops.affine import affine
from tokenline.ops.precision import Precision


@dataclass(frozen=True)
class QuantizedArray:
    """A matrix in groups of codes: `value = code * scale + bias`.

    codes uint8 [N, K], one code a byte, below 2**bits; scales and biases float32 [N, K / group_size]. Several matrices
    of one shape may be stacked along axes before these.
    """

    codes: np.ndarray
    scales: np.ndarray
    biases: np.ndarray
    bits: int
    group_size: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    def dequantize(self) -> np.ndarray:
        """float32 [N, K]."""
        groups = self.codes.reshape(*self.scales.shape, self.group_size).astype(np.float32)
        groups *= self.scales[..., None]
        groups += self.biases[..., None]
        return groups.reshape(self.codes.shape)


HostArray = np.ndarray | QuantizedArray
Rows = Callable[[np.ndarray], np.ndarray]  # a change of a matrix's rows


def dense(array: HostArray) -> np.ndarray:
    """float32, dequantized if need be."""
    return array.dequantize() if isinstance(array, QuantizedArray) else np.asarray(array, dtype=np.float32)


def map_rows(array: HostArray, change: Rows) -> HostArray:
    """Apply a change of axis 0 (a permutation, a selection) without leaving the quantized form."""
    if isinstance(array, QuantizedArray):
        return QuantizedArray(
            change(array.codes), change(array.scales), change(array.biases), array.bits, array.group_size
        )
    return change(array)


def stack_rows(arrays: list[HostArray]) -> HostArray:
    """Concatenate along axis 0, quantized only where all are, in the same groups."""
    quantized = [array for array in arrays if isinstance(array, QuantizedArray)]
    if len(quantized) == len(arrays) and len({(array.bits, array.group_size) for array in quantized}) == 1:
        return QuantizedArray(
            np.concatenate([array.codes for array in quantized]),
            np.concatenate([array.scales for array in quantized]),
            np.concatenate([array.biases for array in quantized]),
            quantized[0].bits,
            quantized[0].group_size,
        )
    return np.concatenate([dense(array) for array in arrays])


def quantized(matrix: np.ndarray, bits: int, group_size: int) -> QuantizedArray:
    """A float matrix [N, K] in groups along its rows, by the rule of MLX's affine quantization."""
    rows, width = matrix.shape
    groups = np.asarray(matrix, np.float32).reshape(rows, width // group_size, group_size)
    codes, scales, biases = affine(np, groups, bits)
    return QuantizedArray(codes.astype(np.uint8).reshape(rows, width), scales, biases, bits, group_size)


def coded(array: HostArray, precision: Precision) -> HostArray:
    """A dense matrix in the bits that are asked for, where its rows are whole groups."""
    bits, group = precision.weight_bits, precision.weight_group
    if bits is None or isinstance(array, QuantizedArray) or array.shape[-1] % group:
        return array
    return quantized(array, bits, group)
