"""An array outside a backend, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

# By the backends' common names; numpy has no bfloat16, whose bits are kept as integers.
_HOST = {
    "bfloat16": "<u2",
    "float16": "<f2",
    "float32": "<f4",
    "uint8": "<u1",
    "int32": "<i4",
    "uint32": "<u4",
}


@dataclass(frozen=True)
class StoredArray:
    """`values` are the numbers, or their bits where the host has no such dtype."""

    dtype: str
    values: np.ndarray

    @classmethod
    def of_bytes(cls, dtype: str, shape: tuple[int, ...], data: bytearray) -> StoredArray:
        """ValueError where these are not the bytes of such an array. Its values are the bytes' own memory."""
        if dtype not in _HOST:
            raise ValueError(f"no array is stored as {dtype!r}")
        return cls(dtype, np.frombuffer(data, _HOST[dtype]).reshape(shape))


def stored_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Of an array of that shape; ValueError for a dtype or a shape that none has."""
    if dtype not in _HOST or any(size < 0 for size in shape):
        raise ValueError(f"no array is stored as {dtype!r} {list(shape)}")
    return prod(shape) * np.dtype(_HOST[dtype]).itemsize
