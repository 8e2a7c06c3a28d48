"""The rule of MLX's affine quantization, for arrays that have no kernel of it."""

from __future__ import annotations

from typing import Any


def affine(xp: Any, groups: Any, bits: int) -> tuple[Any, Any, Any]:
    """float32 groups [..., G] of `xp` (the module numpy or torch) -> codes [..., G], still float32, scales and biases
    [...], so that a number is nearly code * scale + bias.

    The edge farther from zero is met exactly, and zero is one of the values.
    """
    highest = (1 << bits) - 1
    low, high = xp.amin(groups, -1), xp.amax(groups, -1)
    from_low = xp.abs(low) > xp.abs(high)
    scale = xp.clip((high - low) / highest, 1e-7, None)
    scale, edge = xp.where(from_low, scale, -scale), xp.where(from_low, low, high)
    steps = xp.round(edge / scale)
    meets = steps != 0
    scale = xp.where(meets, edge / xp.where(meets, steps, 1.0), scale)
    bias = xp.where(meets, edge, 0.0)
    codes = xp.clip(xp.round((groups - bias[..., None]) / scale[..., None]), 0, highest)
    return codes, scale, bias
