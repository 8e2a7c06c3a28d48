"""Blocks that families share: projections, norms, gated MLP, embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.models.forward import Forward
from tokenline.models.low_rank import low_rank_terms
from tokenline.ops.arrays import HostArray, Rows, dense, map_rows, stack_rows
from tokenline.ops.base import Array, Ops, Weight


class Linear:
    """One or several projections of one input, kept as one matrix so that a step reads it in one product.

    `rows` changes the order of a part's rows (weight and bias) as it is loaded. The active adapter's term is added to
    the product; where it has none for these projections, or none is active, nothing else is computed.
    """

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        parts: Sequence[tuple[str, int]],
        width: int,
        *,
        bias: bool = False,
        rows: Sequence[Rows | None] | None = None,
    ) -> None:
        self._ops = ops
        changes = rows or [None] * len(parts)

        def read(kind: str, shape: tuple[int, ...]) -> list[HostArray]:
            return [tensors.take(f"{name}.{kind}", (count, *shape)) for name, count in parts]

        def stacked(arrays: Sequence[HostArray]) -> HostArray:
            return stack_rows(
                [a if c is None else map_rows(a, c) for a, c in zip(arrays, changes, strict=True)]
            )

        matrices = read("weight", (width,))
        self.weight: Weight = ops.weight(stacked(matrices))
        self._bias: Array | None = ops.array(dense(stacked(read("bias", ())))) if bias else None
        self._adapters = tensors.adapters
        named = [(name, matrix) for (name, _), matrix in zip(parts, matrices, strict=True)]
        self._terms = low_rank_terms(ops, tensors, named, changes)

    @property
    def nbytes(self) -> int:
        return self._ops.weight_bytes(self.weight)

    def __call__(self, x: Array) -> Array:
        term = self._terms.get(self._adapters.active)
        if term is None:
            return self._ops.linear(x, self.weight, self._bias)
        y = term(x, self._ops.linear(x, self.weight))
        return y if self._bias is None else y + self._bias


class RmsNorm:
    """x / rms(x) * (weight + offset); offset is 1 where a checkpoint stores weights around zero."""

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        width: int,
        eps: float,
        *,
        offset: float = 0.0,
        rows: Rows | None = None,
    ) -> None:
        self._ops, self._eps = ops, eps
        weight = dense(tensors.take(f"{name}.weight", (width,)))
        weight = weight if rows is None else rows(weight)
        self._weight = ops.array(weight + np.float32(offset))

    def __call__(self, x: Array) -> Array:
        return self._ops.rms_norm(x, self._weight, self._eps)


def pre_norms(
    ops: Ops, tensors: Tensors, layer: str, width: int, eps: float, *, offset: float = 0.0
) -> tuple[RmsNorm, RmsNorm]:
    """The norms before a layer's attention and before its MLP, by their usual names."""
    first, second = (
        RmsNorm(ops, tensors, f"{layer}.{name}_layernorm", width, eps, offset=offset)
        for name in ("input", "post_attention")
    )
    return first, second


class LayerNorm:
    """(x - mean(x)) / std(x) * weight + bias."""

    def __init__(
        self, ops: Ops, tensors: Tensors, name: str, width: int, eps: float, *, bias: bool = False
    ) -> None:
        self._ops, self._eps = ops, eps
        self._weight = ops.array(dense(tensors.take(f"{name}.weight", (width,))))
        self._bias = ops.array(dense(tensors.take(f"{name}.bias", (width,)))) if bias else None

    def __call__(self, x: Array) -> Array:
        return self._ops.layer_norm(x, self._weight, self._bias, self._eps)


class GatedMlp:
    """act(gate) * up, projected down; gate and up as one projection.

    `fused` names a part of the checkpoint that holds gate and up in one matrix already. `gate_scale` multiplies the
    gate before it is activated.
    """

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        *,
        width: int,
        inner: int,
        bias: bool = False,
        activation: str = "silu",
        fused: str | None = None,
        gate_up: tuple[str, str] = ("gate_proj", "up_proj"),
        down: str = "down_proj",
        gate_scale: float = 1.0,
    ) -> None:
        parts = [(f"{name}.{part}", inner) for part in gate_up]
        if fused is not None:
            parts = [(f"{name}.{fused}", 2 * inner)]
        self._gated = gated(ops, activation)
        self._scale = None
        if gate_scale != 1.0:
            self._scale = ops.array(np.repeat(np.asarray([gate_scale, 1.0], np.float32), inner))
        self._gate_up = Linear(ops, tensors, parts, width, bias=bias)
        self._down = Linear(ops, tensors, [(f"{name}.{down}", width)], inner, bias=bias)

    @property
    def nbytes(self) -> int:
        return self._gate_up.nbytes + self._down.nbytes

    def __call__(self, x: Array, forward: Forward | None = None, cache: Any = None) -> Array:
        gate_up = self._gate_up(x)
        return self._down(self._gated(gate_up if self._scale is None else gate_up * self._scale))


class SquaredReluMlp:
    """relu(up)², projected down; no gate."""

    def __init__(
        self, ops: Ops, tensors: Tensors, name: str, *, width: int, inner: int, bias: bool = False
    ) -> None:
        self._ops = ops
        self._up = Linear(ops, tensors, [(f"{name}.up_proj", inner)], width, bias=bias)
        self._down = Linear(ops, tensors, [(f"{name}.down_proj", width)], inner, bias=bias)

    @property
    def nbytes(self) -> int:
        return self._up.nbytes + self._down.nbytes

    def __call__(self, x: Array, forward: Forward | None = None, cache: Any = None) -> Array:
        return self._down(squared_relu(self._ops, self._up(x)))


def squared_relu(ops: Ops, x: Array) -> Array:
    x = ops.above(x, 0.0, 0.0)
    return x * x


def gated(ops: Ops, activation: str) -> Callable[[Array], Array]:
    """[..., 2F], gate first -> act(gate) * up, by a configuration's name; CheckpointError for one not supported."""
    known = {"silu": ops.swiglu, "swish": ops.swiglu, "gelu_pytorch_tanh": ops.geglu, "gelu_tanh": ops.geglu}
    if activation not in known:
        raise CheckpointError(
            f"an MLP with {activation!r} is not supported", f"supported: {', '.join(sorted(known))}"
        )
    return known[activation]


class Embedding:
    """Token embedding; a tied head is the same matrix (`head.Head`). `scale` multiplies what is looked up.

    The scale is rounded to the dtype of the computation first, as where Gemma was trained: the square root of 3072 is
    55.5 in bfloat16.
    """

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        vocabulary: int,
        width: int,
        *,
        scale: float = 1.0,
    ) -> None:
        self._ops = ops
        self._scale = None if scale == 1.0 else ops.array(np.asarray([scale], np.float32))
        self.vocabulary_size, self.width = vocabulary, width
        self.table: Weight = ops.table(tensors.take(f"{name}.weight", (vocabulary, width)))

    def __call__(self, ids: Array) -> Array:
        x = self._ops.embedding(ids, self.table)
        return x if self._scale is None else x * self._scale
