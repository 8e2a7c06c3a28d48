"""Counter-based draws: the uniform of a row is a function of its seed and position, and of nothing else."""

from __future__ import annotations

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64 bits without visible structure."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, position: int) -> float:
    """In [0, 1) with 24 bits, so that float32 holds it exactly and never rounds it up to 1."""
    key = _mix((seed + _GOLDEN) & _MASK)
    return (_mix((key + (position + 1) * _GOLDEN) & _MASK) >> 40) / 2**24
