"""How checkpoints store the matrices of experts: one by one, or stacked."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.ops.arrays import HostArray, dense, map_rows, stack_rows

GATED = ("gate_proj", "up_proj", "down_proj")


def expert_matrices(
    tensors: Tensors, name: str, count: int, width: int, inner: int, parts: Sequence[str] = GATED
) -> tuple[list[HostArray], list[HostArray]]:
    """For each expert of the MLP `name` its gate above its up projection [2 * inner, width], and its down projection
    [width, inner].

    Layouts: `experts.E.gate_proj` (published checkpoints; `parts` are its names there), `experts.gate_up_proj`
    (transformers 5 in memory) and `switch_mlp.gate_proj` (mlx-lm).
    """
    gate, up, down = parts
    if f"{name}.experts.gate_up_proj" in tensors:
        return stacked_matrices(
            tensors, (f"{name}.experts.gate_up_proj", f"{name}.experts.down_proj"), count, width, inner
        )
    if f"{name}.switch_mlp.gate_proj.weight" in tensors:
        gates, ups = (
            _apart(tensors.take(f"{name}.switch_mlp.{part}.weight", (count, inner, width)))
            for part in GATED[:2]
        )
        downs = _apart(tensors.take(f"{name}.switch_mlp.{GATED[2]}.weight", (count, width, inner)))
        return [stack_rows(list(pair)) for pair in zip(gates, ups, strict=True)], downs
    one_by_one = [f"{name}.experts.{expert}" for expert in range(count)]
    gate_up = [
        stack_rows([tensors.take(f"{expert}.{part}.weight", (inner, width)) for part in (gate, up)])
        for expert in one_by_one
    ]
    return gate_up, [tensors.take(f"{expert}.{down}.weight", (width, inner)) for expert in one_by_one]


def stacked_matrices(
    tensors: Tensors, names: tuple[str, str], count: int, width: int, inner: int
) -> tuple[list[HostArray], list[HostArray]]:
    """As `expert_matrices`, of two arrays that hold all experts: gate above up, and down."""
    gate_up, down = names
    return (
        _apart(tensors.take(gate_up, (count, 2 * inner, width))),
        _apart(tensors.take(down, (count, width, inner))),
    )


def transposed_matrices(
    tensors: Tensors, name: str, count: int, width: int, inner: int
) -> tuple[list[HostArray], list[HostArray]]:
    """As `expert_matrices`, of Llama 4's layout: `experts.gate_up_proj` [E, width, 2 * inner] and `experts.down_proj`
    [E, inner, width]."""
    shapes = {"gate_up_proj": (count, width, 2 * inner), "down_proj": (count, inner, width)}
    gate_up, down = (
        np.ascontiguousarray(dense(tensors.take(f"{name}.experts.{part}", shape)).swapaxes(1, 2))
        for part, shape in shapes.items()
    )
    return list(gate_up), list(down)


def _apart(stacked: HostArray) -> list[HostArray]:
    return [map_rows(stacked, itemgetter(expert)) for expert in range(stacked.shape[0])]
