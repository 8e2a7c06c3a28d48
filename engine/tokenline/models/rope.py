"""Rotary position tables: computed once on the host in float32, the same for every backend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tokenline.errors import CheckpointError
from tokenline.ops.base import Array, Ops

_SUPPORTED = ("default", "linear", "llama3")


def _llama3(frequencies: np.ndarray, scaling: Mapping[str, Any]) -> np.ndarray:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended (Llama 3.1's scheme)."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    wavelengths = 2 * math.pi / frequencies
    blend = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    return ((1 - blend) / scaling["factor"] + blend) * frequencies


def inverse_frequencies(size: int, theta: float, scaling: Mapping[str, Any] | None) -> np.ndarray:
    """float32 [size / 2]; CheckpointError for a kind of scaling that is not supported."""
    frequencies = 1.0 / theta ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size))
    scaling = scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    try:
        if kind == "linear":
            frequencies = frequencies / scaling["factor"]
        elif kind == "llama3":
            frequencies = _llama3(frequencies, scaling)
        elif kind != "default":
            raise CheckpointError(
                f"rope of type {kind!r} is not supported", f"supported: {', '.join(_SUPPORTED)}"
            )
    except KeyError as error:
        raise CheckpointError(f"rope of type {kind!r} lacks {error}", "mend config.json") from error
    return frequencies.astype(np.float32)


class RopeTable:
    """cos and sin of every position up to the context's end, [positions, size], in the backend's dtype."""

    def __init__(self, ops: Ops, frequencies: np.ndarray, positions: int) -> None:
        angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies[None]
        angles = np.concatenate([angles, angles], axis=-1)
        self._ops = ops
        self._cos = ops.array(np.cos(angles))
        self._sin = ops.array(np.sin(angles))

    def at(self, positions: int | np.ndarray, tokens: int) -> tuple[Array, Array]:
        """For consecutive tokens from a position, [1, 1, T, size]; for positions [B, T], [B, 1, T, size]."""
        if isinstance(positions, int):
            stop = positions + tokens
            return self._cos[None, None, positions:stop], self._sin[None, None, positions:stop]
        rows = self._ops.array(positions)
        return self._cos[rows][:, None], self._sin[rows][:, None]
