"""Weights that MLX quantized: `NAME.weight` as words of codes, `NAME.scales` and `NAME.biases` beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.ops.arrays import QuantizedArray

_BITS = (2, 4, 8)  # whose codes do not cross words


def mlx_quantized(
    names: set[str], read: Callable[[str], np.ndarray], quantization: Mapping[str, Any]
) -> Tensors:
    """The matrices, quantized where scales lie beside them; `quantization` is config.json's, with an entry of its own
    for each name that differs. CheckpointError for another mode than affine and for bits that are not supported."""
    packed = {
        f"{stem}.weight"
        for stem in (name.removesuffix(".scales") for name in names if name.endswith(".scales"))
        if f"{stem}.weight" in names
    }

    def matrix(name: str) -> np.ndarray | QuantizedArray:
        if name not in packed:
            return read(name)
        stem = name.removesuffix(".weight")
        said = quantization.get(stem)
        said = said if isinstance(said, Mapping) else quantization
        bits, group, mode = said.get("bits"), said.get("group_size"), said.get("mode", "affine")
        if mode != "affine" or bits not in _BITS or not group:
            raise CheckpointError(
                f"{stem} is quantized as {mode!r} with {bits} bits in groups of {group}, which is not supported",
                f"supported: affine with {', '.join(map(str, _BITS))} bits",
            )
        return QuantizedArray(
            _codes(read(name), bits), read(f"{stem}.scales"), read(f"{stem}.biases"), bits, group
        )

    beside = {name.removesuffix("weight") + part for name in packed for part in ("scales", "biases")}
    return Tensors(names - beside, matrix)


def _codes(words: np.ndarray, bits: int) -> np.ndarray:
    """uint32 [..., W] -> uint8 [..., W * 32 / bits], the earliest in the lowest bits."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    codes = (words[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    return codes.astype(np.uint8).reshape(*words.shape[:-1], -1)
