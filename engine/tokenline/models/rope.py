"""Rotary position tables: computed on the host in float32, the same for every backend, grown as positions are asked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tokenline.models.rope_scaling import Rotation
from tokenline.ops.base import Array, Ops

FIRST_POSITIONS = (
    2048  # a table holds at least so many and then doubles: most contexts are never used to their end
)


class RopeTable:
    """cos and sin of positions, [positions, size], in the backend's dtype.

    Pairs are the halves of what is rotated: the first `size` entries of a head, the others stay. A checkpoint whose
    pairs are neighbours (`interleaved`) has its rows of q and k put in that order as they are loaded (`rows`), which
    changes no score.
    """

    def __init__(self, ops: Ops, rotation: Rotation, positions: int, *, interleaved: bool = False) -> None:
        self._ops, self._rotation, self._positions = ops, rotation, positions
        self.size = 2 * len(rotation.frequencies)
        self._interleaved = interleaved
        self._held = 0
        self._grow(min(FIRST_POSITIONS, positions))

    def _grow(self, positions: int) -> None:
        angles = np.arange(positions, dtype=np.float32)[:, None] * self._rotation.frequencies[None]
        angles = np.concatenate([angles, angles], axis=-1)
        scale = np.float32(self._rotation.magnitude)
        self._cos = self._ops.array(np.cos(angles) * scale)
        self._sin = self._ops.array(np.sin(angles) * scale)
        self._held = positions

    def at(self, positions: int | np.ndarray, tokens: int) -> tuple[Array, Array]:
        """For consecutive tokens from a position, [1, 1, T, size]; for positions [B, T], [B, 1, T, size]."""
        stop = positions + tokens if isinstance(positions, int) else int(positions.max()) + 1
        if stop > self._held:
            self._grow(max(stop, min(2 * self._held, self._positions)))
        if isinstance(positions, int):
            return self._cos[None, None, positions:stop], self._sin[None, None, positions:stop]
        rows = self._ops.array(positions)
        return self._cos[rows][:, None], self._sin[rows][:, None]

    def turn(self, x: Array, cos: Array, sin: Array) -> Array:
        """x [B, H, T, D], rotated."""
        if x.shape[-1] == self.size:
            return self._ops.rope(x, cos, sin)
        turned = self._ops.rope(x[..., : self.size], cos, sin)
        return self._ops.concat([turned, x[..., self.size :]], -1)

    def rows(self, heads: int) -> Callable[[np.ndarray], np.ndarray] | None:
        """How the rows of a projection to so many heads are to be ordered; None: as they are."""
        if not self._interleaved:
            return None

        def halves(matrix: np.ndarray) -> np.ndarray:
            of_heads = matrix.reshape(heads, matrix.shape[0] // heads, -1)
            pairs, rest = of_heads[:, : self.size], of_heads[:, self.size :]
            ordered = np.concatenate([pairs[:, 0::2], pairs[:, 1::2], rest], axis=1)
            return np.ascontiguousarray(ordered.reshape(matrix.shape))

        return halves
