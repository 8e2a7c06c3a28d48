"""Queries that are sharpened with their position, so that attention over a long text does not fade."""

from __future__ import annotations

import numpy as np

from tokenline.ops.base import Array, Ops


class Temperature:
    """A query at position p is multiplied by 1 + weight * log(1 + floor((p + 1) / every)) (Nakanishi 2025,
    "Scalable-Softmax Is Superior for Attention", as Llama 4 uses it)."""

    def __init__(self, ops: Ops, weight: float, every: float) -> None:
        self._ops, self._weight, self._every = ops, weight, every

    def at(self, positions: int | np.ndarray, tokens: int) -> Array:
        """For consecutive tokens from a position, [1, 1, T, 1]; for positions [B, T], [B, 1, T, 1]."""
        if isinstance(positions, int):
            positions = np.arange(positions, positions + tokens)[None]
        steps = np.floor((positions.astype(np.float32) + 1) / np.float32(self._every))
        return self._ops.array(1 + np.float32(self._weight) * np.log1p(steps)[:, None, :, None])
