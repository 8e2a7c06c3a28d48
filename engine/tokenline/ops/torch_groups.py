"""Groups of codes on torch, which has no kernel for them."""

from __future__ import annotations

import torch
from torch import Tensor

from tokenline.ops.affine import affine


def quantize(x: Tensor, bits: int, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `Ops.quantize` says; two codes of four bits share a byte, the earlier in its low half."""
    codes, scales, biases = affine(torch, x.float().unflatten(-1, (-1, group_size)), bits)
    codes = codes.to(torch.uint8).flatten(-2)
    if bits == 4:
        codes = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return codes, scales.to(x.dtype), biases.to(x.dtype)


def dequantize(codes: Tensor, scales: Tensor, biases: Tensor, bits: int, group_size: int) -> Tensor:
    if bits == 4:
        codes = torch.stack([codes & 0xF, codes >> 4], dim=-1).flatten(-2)
    groups = codes.unflatten(-1, (-1, group_size)).to(scales.dtype)
    return (groups * scales[..., None] + biases[..., None]).flatten(-2)
