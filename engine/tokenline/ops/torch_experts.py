"""Products with one matrix for each expert, on torch: one product for each expert that somebody chose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tokenline.ops.base import Ops


def expert_linear(
    ops: Ops, x: Tensor, weights: Sequence[Any], experts: Tensor, bias: Tensor | None
) -> Tensor:
    """As `Ops.expert_linear` says. Rows are brought in the order of their experts and back; on CUDA the host waits to
    learn how many rows each has."""
    tokens, chosen = experts.shape
    flat = experts.flatten()
    order = torch.argsort(flat, stable=True)
    rows = x.flatten(0, 1)[order if x.shape[1] == chosen else order // chosen]
    counts = torch.bincount(flat, minlength=len(weights)).tolist()
    parts = [
        ops.linear(part, weights[expert], None if bias is None else bias[expert])
        for expert, part in enumerate(rows.split(counts))
        if counts[expert]
    ]
    sorted_rows = torch.cat(parts)
    back = torch.empty_like(sorted_rows)
    back[order] = sorted_rows
    return back.view(tokens, chosen, -1)
