"""MXFP4: four-bit floats in blocks of 32 with a power of two for each (OCP Microscaling Formats v1.0, 5.3 and 5.4)."""

from __future__ import annotations

import numpy as np

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
_CODES = np.concatenate([_E2M1, -_E2M1])
_BIAS = 127  # of the shared exponent, E8M0


def dequantize_mxfp4(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """blocks uint8 [..., B, 16], the earlier of two numbers in the low half of a byte, and exponents uint8 [..., B]
    -> float32 [..., 32 * B]."""
    values = np.empty((*blocks.shape, 2), np.float32)
    values[..., 0], values[..., 1] = _CODES[blocks & 0xF], _CODES[blocks >> 4]
    by_block = values.reshape(*scales.shape, 32)
    np.ldexp(by_block, scales.astype(np.int32)[..., None] - _BIAS, out=by_block)
    return by_block.reshape(*scales.shape[:-1], -1)
