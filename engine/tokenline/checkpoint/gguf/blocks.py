"""A tensor's numbers: floats, or blocks of codes, kept in groups where the engine keeps groups of that form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from tokenline.errors import CheckpointError
from tokenline.ops.arrays import HostArray, QuantizedArray

_BLOCK = 32
# Read as float32.
_DEQUANTIZED = (
    Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0,
    Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_NL, Kind.MXFP4,
)  # fmt: skip
_FLOATS = (Kind.F32, Kind.F16)


@dataclass(frozen=True)
class Stacked:
    """One of the matrices that a tensor stacks, read without the others."""

    name: str
    data: np.ndarray
    shape: tuple[int, ...]  # as the file orders it
    tensor_type: Kind

    @classmethod
    def of(cls, tensor: Any, index: int) -> Self:
        return cls(tensor.name, tensor.data[index], tuple(tensor.shape[:-1]), tensor.tensor_type)


def read_tensor(tensor: Any) -> HostArray:
    """In the order of a row-major array (the file names its shape the other way round); CheckpointError for a type of
    blocks that is not supported."""
    shape = tuple(int(n) for n in reversed(tensor.shape))
    kind = tensor.tensor_type
    if kind in (Kind.Q4_1, Kind.Q8_0) and len(shape) > 1:
        return _q4_1(tensor.data, shape) if kind == Kind.Q4_1 else _q8_0(tensor.data, shape)
    if kind in _FLOATS:
        return np.asarray(tensor.data, dtype=np.float32).reshape(shape)
    if kind not in _DEQUANTIZED:
        raise CheckpointError(
            f"the tensor {tensor.name} is stored as {kind.name}, which is not supported",
            f"supported: {', '.join(each.name for each in (*_FLOATS, *_DEQUANTIZED))}",
        )
    return dequantize(tensor.data, kind).reshape(shape)


def _q4_1(data: np.ndarray, shape: tuple[int, ...]) -> QuantizedArray:
    blocks = data.reshape(*shape[:-1], -1, 20)
    packed = blocks[..., 4:]
    codes = np.concatenate([packed & 15, packed >> 4], axis=-1).reshape(shape)
    return QuantizedArray(codes, _half(blocks[..., 0:2]), _half(blocks[..., 2:4]), 4, _BLOCK)


def _q8_0(data: np.ndarray, shape: tuple[int, ...]) -> QuantizedArray:
    blocks = data.reshape(*shape[:-1], -1, 34)
    scales = _half(blocks[..., 0:2])
    codes = (blocks[..., 2:].view(np.int8).astype(np.int16) + 128).astype(np.uint8).reshape(shape)
    return QuantizedArray(codes, scales, -128.0 * scales, 8, _BLOCK)


def _half(two_bytes: np.ndarray) -> np.ndarray:
    return two_bytes.copy().view(np.float16)[..., 0].astype(np.float32)
