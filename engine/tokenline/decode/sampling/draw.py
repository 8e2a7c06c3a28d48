"""Counter-based draws: the uniform of a row is a function of its seed and position, and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenline.ops.base import Array, Ops

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_STREAM = 0xD1B54A32D192ED03

# What a uniform is for: each purpose has a stream of its own.
TOKEN, XTC = 0, 1


def _mix(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64 bits without visible structure."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, position: int, stream: int = TOKEN) -> float:
    """In [0, 1) with 24 bits, so that float32 holds it exactly and never rounds it up to 1."""
    key = _mix((seed + _GOLDEN) & _MASK)
    if stream:
        key = _mix((key + stream * _STREAM) & _MASK)
    return (_mix((key + (position + 1) * _GOLDEN) & _MASK) >> 40) / 2**24


def invert(ops: Ops, masses: Array, uniforms: Sequence[float]) -> Array:
    """The index at which the cumulative mass first exceeds each row's uniform share of the whole; int [rows]."""
    cumulative = ops.cumsum(masses)
    # The share is taken of the sum as computed, so that rounding never pushes it past the last entry with mass.
    shares = cumulative[:, -1:] * ops.float32(np.asarray(uniforms, np.float32)[:, None])
    return ops.to_int(ops.row_sum(cumulative <= shares)[:, 0])
