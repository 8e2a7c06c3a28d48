"""Groups of codes on torch: the affine quantization that MLX has kernels for."""

from __future__ import annotations

import torch
from torch import Tensor


def quantize(x: Tensor, bits: int, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `Ops.quantize` says; two codes of four bits share a byte, the earlier in its low half."""
    highest = (1 << bits) - 1
    groups = x.float().unflatten(-1, (-1, group_size))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    # The edge farther from zero is met exactly, and zero is one of the values.
    from_low = low.abs() > high.abs()
    scale = ((high - low) / highest).clamp_min(1e-7)
    scale, edge = torch.where(from_low, scale, -scale), torch.where(from_low, low, high)
    steps = torch.round(edge / scale)
    scale = torch.where(steps == 0, scale, edge / steps)
    bias = torch.where(steps == 0, 0.0, edge)
    codes = torch.round((groups - bias) / scale).clamp_(0, highest).to(torch.uint8).flatten(-2)
    if bits == 4:
        codes = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return codes, scale.squeeze(-1).to(x.dtype), bias.squeeze(-1).to(x.dtype)


def dequantize(codes: Tensor, scales: Tensor, biases: Tensor, bits: int, group_size: int) -> Tensor:
    if bits == 4:
        codes = torch.stack([codes & 0xF, codes >> 4], dim=-1).flatten(-2)
    groups = codes.unflatten(-1, (-1, group_size)).to(scales.dtype)
    return (groups * scales[..., None] + biases[..., None]).flatten(-2)
