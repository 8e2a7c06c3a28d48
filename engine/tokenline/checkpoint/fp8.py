"""Weights in eight-bit floats with a scale for each block, as DeepSeek publishes them: `NAME` and `NAME_scale_inv`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError

_SCALE = "_scale_inv"


def _e4m3() -> np.ndarray:
    """float32 of every code: a sign, four bits of exponent, three of mantissa, no infinities (Micikevicius et al. 2022,
    "FP8 Formats for Deep Learning")."""
    codes = np.arange(256, dtype=np.int32)
    exponent, mantissa = codes >> 3 & 0xF, codes & 7
    size = np.where(
        exponent == 0, np.ldexp(mantissa / 8, -6), np.ldexp(1 + mantissa / 8, np.maximum(exponent, 1) - 7)
    )
    size[codes & 0x7F == 0x7F] = np.nan
    return np.where(codes >> 7, -size, size).astype(np.float32)


E4M3 = _e4m3()


def fp8_blocks(
    names: set[str], read: Callable[[str], np.ndarray], quantization: Mapping[str, Any]
) -> Tensors:
    """The matrices as numbers: what is multiplied are floats, and activations are not quantized. `quantization` is
    config.json's; CheckpointError where it has no blocks."""
    scaled = {name.removesuffix(_SCALE) for name in names if name.endswith(_SCALE)}
    block = quantization.get("weight_block_size")
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block)):
        raise CheckpointError(
            f"fp8 with the weight_block_size {block!r} is not supported",
            "supported: two numbers, as [128, 128]",
        )

    def matrix(name: str) -> np.ndarray:
        values = read(name)
        if name not in scaled:
            return values
        rows, columns = (np.arange(size) // step for size, step in zip(values.shape, block, strict=True))
        return values * read(f"{name}{_SCALE}")[rows[:, None], columns[None]]

    return Tensors({name for name in names if not name.endswith(_SCALE)}, matrix)
