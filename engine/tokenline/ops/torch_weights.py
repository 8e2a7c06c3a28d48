"""Matrices in the layouts that torch's CPU kernels take."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from tokenline.ops.arrays import HostArray, QuantizedArray


class Int4Weight:
    """Four-bit groups in the layout of torch's CPU kernel, which takes bfloat16 activations."""

    def __init__(self, value: QuantizedArray) -> None:
        self.rows = value.shape[0]
        self.group_size = value.group_size
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
            torch.from_numpy(value.codes.astype(np.int32)), 1
        )
        # The kernel computes (code - 8) * scale + zero.
        scales = torch.from_numpy(np.ascontiguousarray(value.scales.T))
        zeros = torch.from_numpy(np.ascontiguousarray((value.biases + 8 * value.scales).T))
        self.scales_and_zeros = torch.stack([scales, zeros], dim=-1).to(torch.bfloat16).contiguous()

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes + self.scales_and_zeros.nbytes


def has_int4_kernel(value: HostArray) -> TypeGuard[QuantizedArray]:
    """The kernel computes sixteen rows at once."""
    return isinstance(value, QuantizedArray) and value.bits == 4 and value.shape[0] % 16 == 0


class PackedWeight:
    """A dense matrix in oneDNN's blocked layout, which inference reads faster than rows: on an AVX-512 core 1.4
    times for one token, 2 to 3 times for a prefill piece (docs/decisions). `torch.compile` packs the same way."""

    def __init__(self, matrix: Tensor) -> None:
        self.nbytes = matrix.nbytes
        self.packed = torch.ops.mkldnn._reorder_linear_weight(matrix)
