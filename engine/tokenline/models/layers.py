"""Blocks that families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenline.cache import LayerCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.ops.arrays import dense, stack_rows
from tokenline.ops.base import Array, Ops, Weight


class Linear:
    """One or several projections of one input, kept as one matrix so that a step reads it in one product."""

    def __init__(
        self, ops: Ops, tensors: Tensors, parts: Sequence[tuple[str, int]], width: int, *, bias: bool = False
    ) -> None:
        self._ops = ops
        self.weight: Weight = ops.weight(
            stack_rows([tensors.take(f"{n}.weight", (r, width)) for n, r in parts])
        )
        self._bias: Array | None = None
        if bias:
            self._bias = ops.array(dense(stack_rows([tensors.take(f"{n}.bias", (r,)) for n, r in parts])))

    @property
    def nbytes(self) -> int:
        return self._ops.weight_bytes(self.weight)

    def __call__(self, x: Array) -> Array:
        return self._ops.linear(x, self.weight, self._bias)


class RmsNorm:
    def __init__(self, ops: Ops, tensors: Tensors, name: str, width: int, eps: float) -> None:
        self._ops, self._eps = ops, eps
        self._weight = ops.array(dense(tensors.take(f"{name}.weight", (width,))))

    def __call__(self, x: Array) -> Array:
        return self._ops.rms_norm(x, self._weight, self._eps)


class Attention:
    """Grouped-query attention over a layer cache, q, k and v as one projection."""

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        *,
        width: int,
        heads: int,
        key_value_heads: int,
        size: int,
        bias: bool,
    ) -> None:
        self._ops, self._heads, self._kv_heads, self._size = ops, heads, key_value_heads, size
        self._scale = size**-0.5
        rows = [(f"{name}.q_proj", heads * size)]
        rows += [(f"{name}.{part}_proj", key_value_heads * size) for part in "kv"]
        self._qkv = Linear(ops, tensors, rows, width, bias=bias)
        self._out = Linear(ops, tensors, [(f"{name}.o_proj", width)], heads * size, bias=bias)

    @property
    def nbytes(self) -> int:
        return self._qkv.nbytes + self._out.nbytes

    def __call__(self, x: Array, cos: Array, sin: Array, mask: Any, cache: LayerCache) -> Array:
        heads = self._ops.heads(self._qkv(x), self._heads + 2 * self._kv_heads, self._size)
        turning = self._heads + self._kv_heads
        turned = self._ops.rope(heads[:, :turning], cos, sin)
        keys, values = cache.update(turned[:, self._heads :], heads[:, turning:])
        seen = self._ops.attention(turned[:, : self._heads], keys, values, mask, self._scale)
        return self._out(self._ops.merge_heads(seen))


class GatedMlp:
    """silu(gate) * up, projected down; gate and up as one projection."""

    def __init__(self, ops: Ops, tensors: Tensors, name: str, *, width: int, inner: int, bias: bool) -> None:
        self._ops = ops
        parts = [(f"{name}.gate_proj", inner), (f"{name}.up_proj", inner)]
        self._gate_up = Linear(ops, tensors, parts, width, bias=bias)
        self._down = Linear(ops, tensors, [(f"{name}.down_proj", width)], inner, bias=bias)

    @property
    def nbytes(self) -> int:
        return self._gate_up.nbytes + self._down.nbytes

    def __call__(self, x: Array) -> Array:
        return self._down(self._ops.swiglu(self._gate_up(x)))


class Embedding:
    """Token embedding; a tied head is the same matrix."""

    def __init__(
        self, ops: Ops, tensors: Tensors, name: str, vocabulary: int, width: int, *, tied: bool
    ) -> None:
        self._ops = ops
        self._table: Weight = ops.table(tensors.take(f"{name}.weight", (vocabulary, width)))
        self._head: Weight | None = ops.tied(self._table) if tied else None

    @property
    def head_nbytes(self) -> int:
        return 0 if self._head is None else self._ops.weight_bytes(self._head)

    def __call__(self, ids: Array) -> Array:
        return self._ops.embedding(ids, self._table)

    def head(self, x: Array) -> Array:
        return self._ops.linear(x, self._head)
