"""Attention whose scores are changed before the softmax, which the fused kernels of a backend do not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenline.ops.base import Array, Ops


def scored_attention(
    ops: Ops,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    scale: float,
    cap: float | None,
    sinks: Array | None,
) -> Array:
    """As `Ops.attention` says; the softmax in float32."""
    rows, heads, queries, size = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    grouped = (q * scale).reshape(rows, kv_heads, heads // kv_heads, queries, size)
    scores = ops.to_float32(grouped @ k[:, :, None].swapaxes(-1, -2))
    if cap is not None:
        scores = ops.tanh(scores / cap) * cap
    if mask is not None:
        scores = ops.where(mask[:, :, None], scores, float("-inf"))
    if sinks is not None:
        of_heads = ops.to_float32(sinks).reshape(1, kv_heads, heads // kv_heads, 1, 1)
        wide = of_heads + ops.float32(np.zeros((rows, 1, 1, queries, 1), np.float32))
        scores = ops.concat([scores, wide], -1)
    weights = ops.like(ops.softmax(scores)[..., :keys], v)
    return (weights @ v[:, :, None]).reshape(rows, heads, queries, v.shape[-1])
