"""Grouped-query attention over a layer cache, with what families add to it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tokenline.cache import AttentionCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.config import Sizes
from tokenline.models.forward import Forward
from tokenline.models.layers import Linear, RmsNorm, Rows
from tokenline.models.rope import RopeTable
from tokenline.models.temperature import Temperature
from tokenline.ops.arrays import dense
from tokenline.ops.base import Array, Ops


class Attention:
    """q, k and v as one projection, rope, attention over everything that the cache lets be seen, projection out.

    `rope` None: positions are not told to this layer. `norm` makes the norm of q or k by its name: `norm_over`
    "head" norms each head, "all" the whole projection. `cap`: scores are cap * tanh(scores / cap). `sinks`: a logit
    per head that takes part in the softmax and has no value. `gated`: what is seen is multiplied by the sigmoid of
    a gate, whose rows lie in q_proj behind the query's of the same head. `turned_norm`: after the rope every head of
    q and k is divided by its root mean square, this added to the square. `temperature` multiplies the queries.
    """

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        sizes: Sizes,
        *,
        rope: RopeTable | None,
        bias: bool = False,
        out_bias: bool | None = None,
        out: str = "o_proj",
        fused: str | None = None,
        scale: float | None = None,
        norm: Callable[[str, int], RmsNorm] | None = None,
        norm_over: str = "head",
        cap: float | None = None,
        sinks: bool = False,
        gated: bool = False,
        turned_norm: float | None = None,
        temperature: Temperature | None = None,
    ) -> None:
        heads, key_value_heads, size, width = sizes.heads, sizes.key_value_heads, sizes.head, sizes.width
        self._ops, self._heads, self._kv_heads, self._size = ops, heads, key_value_heads, size
        self._scale = size**-0.5 if scale is None else scale
        self._rope, self._cap, self._norm_over = rope, cap, norm_over
        self._gated = gated
        parts = [(f"{name}.q_proj", (2 if gated else 1) * heads * size)]
        parts += [(f"{name}.{part}_proj", key_value_heads * size) for part in "kv"]
        turned = (heads, key_value_heads)
        rows = [*(None if rope is None else rope.rows(count) for count in turned), None]
        if gated:
            rows[0] = _gates_first(heads)
        if fused is not None:
            parts, rows = [(f"{name}.{fused}", (heads + 2 * key_value_heads) * size)], [None]
        self._qkv = Linear(ops, tensors, parts, width, bias=bias, rows=rows)
        out_bias = bias if out_bias is None else out_bias
        self._out = Linear(ops, tensors, [(f"{name}.{out}", width)], heads * size, bias=out_bias)
        self._q_norm = self._k_norm = None
        if norm is not None:
            many = norm_over == "all"
            self._q_norm = norm(f"{name}.q_norm", heads * size if many else size)
            self._k_norm = norm(f"{name}.k_norm", key_value_heads * size if many else size)
        self._turned_eps, self._temperature = turned_norm, temperature
        self._ones = ops.array(np.ones(size, np.float32))
        self._sinks = ops.array(dense(tensors.take(f"{name}.sinks", (heads,)))) if sinks else None

    @property
    def nbytes(self) -> int:
        return self._qkv.nbytes + self._out.nbytes

    def __call__(self, x: Array, forward: Forward, cache: AttentionCache) -> Array:
        ops, turning = self._ops, self._heads + self._kv_heads
        projected = self._qkv(x)
        gates = None
        if self._gated:
            count = self._heads * self._size
            gates, projected = ops.sigmoid(projected[..., :count]), projected[..., count:]
        heads = ops.heads(self._normed_whole(projected), turning + self._kv_heads, self._size)
        turned, values = heads[:, :turning], heads[:, turning:]
        if self._q_norm is not None and self._k_norm is not None and self._norm_over == "head":
            turned = ops.concat(
                [self._q_norm(turned[:, : self._heads]), self._k_norm(turned[:, self._heads :])], 1
            )
        if self._rope is not None:
            turned = self._rope.turn(turned, *forward.angles(self._rope, cache))
        if self._turned_eps is not None:
            turned = ops.rms_norm(turned, self._ones, self._turned_eps)
        queries = turned[:, : self._heads]
        if self._temperature is not None:
            queries = queries * forward.temperatures(self._temperature, cache)
        mask = forward.mask(cache)
        keys, values = cache.update(turned[:, self._heads :], values)
        seen = ops.attention(queries, keys, values, mask, self._scale, cap=self._cap, sinks=self._sinks)
        said = ops.merge_heads(seen)
        return self._out(said if gates is None else said * gates)

    def _normed_whole(self, qkv: Array) -> Array:
        if self._q_norm is None or self._k_norm is None or self._norm_over != "all":
            return qkv
        queries, keys = self._heads * self._size, self._kv_heads * self._size
        return self._ops.concat(
            [
                self._q_norm(qkv[..., :queries]),
                self._k_norm(qkv[..., queries : queries + keys]),
                qkv[..., queries + keys :],
            ],
            -1,
        )


def _gates_first(heads: int) -> Rows:
    """From query and gate of one head after another to all gates, then all queries."""

    def ordered(matrix: np.ndarray) -> np.ndarray:
        pairs = matrix.reshape(heads, 2, matrix.shape[0] // (2 * heads), -1)
        return np.ascontiguousarray(pairs[:, ::-1].swapaxes(0, 1).reshape(matrix.shape))

    return ordered
