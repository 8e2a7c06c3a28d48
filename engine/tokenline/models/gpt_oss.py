"""gpt-oss: attention with sinks, every other layer sliding; experts with biases and a clamped gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.checkpoint.mxfp4 import dequantize_mxfp4
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, SLIDING, layer_types
from tokenline.models.config import Sizes, needed
from tokenline.models.decoder import Decoder
from tokenline.models.experts import Experts, MixtureOfExperts
from tokenline.models.plain import plain
from tokenline.models.rope import RopeTable
from tokenline.models.routing import Router, choose_then_softmax
from tokenline.ops.arrays import dense
from tokenline.ops.base import Array, Ops


def gpt_oss(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config, eps=1e-5)
    count = needed(config, "num_local_experts", "num_experts")
    chosen, inner = needed(config, "num_experts_per_tok"), needed(config, "intermediate_size")
    bias = bool(config.get("attention_bias", True))
    gated = clamped_swiglu(ops, config.get("swiglu_alpha", 1.702), config.get("swiglu_limit", 7.0))

    def attention(name: str, rope: RopeTable | None) -> Attention:
        return Attention(ops, tensors, name, sizes, rope=rope, bias=bias, sinks=True)

    def mlp(name: str, index: int) -> MixtureOfExperts:
        choice = choose_then_softmax(ops, chosen)
        router = Router(
            ops, tensors, f"{name}.router", width=sizes.width, experts=count, choice=choice, bias=True
        )
        gate_up, gate_up_bias = _projections(
            tensors, f"{name}.experts.gate_up_proj", count, 2 * inner, sizes.width
        )
        down, down_bias = _projections(tensors, f"{name}.experts.down_proj", count, sizes.width, inner)
        matrices = [_gates_first(matrix) for matrix in gate_up], list(down)
        biases = np.stack([_gates_first(row) for row in gate_up_bias]), down_bias
        return MixtureOfExperts(router, Experts(ops, matrices, gated, biases=biases), chosen=chosen)

    return plain(
        ops,
        config,
        tensors,
        sizes,
        context_length,
        family="gpt_oss",
        attention=attention,
        mlp=mlp,
        kinds=layer_types(config, sizes.layers, lambda index: FULL if index % 2 else SLIDING),
    )


def clamped_swiglu(ops: Ops, alpha: float, limit: float) -> Callable[[Array], Array]:
    """[..., 2F], gate first -> gate * sigmoid(alpha * gate) * (up + 1); the gate is clamped above, up on both sides."""

    def gated(gate_up: Array) -> Array:
        inner = gate_up.shape[-1] // 2
        gate, up = gate_up[..., :inner], gate_up[..., inner:]
        gate = ops.where(gate > limit, limit, gate)
        up = ops.where(up > limit, limit, ops.where(up < -limit, -limit, up))
        return gate * ops.sigmoid(gate * alpha) * (up + 1)

    return gated


def _projections(
    tensors: Tensors, name: str, count: int, rows: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """float32 [E, rows, width] and biases [E, rows]: MXFP4 as published, or [E, width, rows] in any float."""
    bias = dense(tensors.take(f"{name}_bias", (count, rows)))
    if f"{name}_blocks" not in tensors:
        return dense(tensors.take(name, (count, width, rows))).swapaxes(1, 2), bias
    blocks = tensors.take(f"{name}_blocks", (count, rows, width // 32, 16))
    scales = tensors.take(f"{name}_scales", (count, rows, width // 32))
    return dequantize_mxfp4(np.asarray(blocks), np.asarray(scales)), bias


def _gates_first(rows: np.ndarray) -> np.ndarray:
    """Of the published order gate, up, gate, up, …"""
    return np.concatenate([rows[0::2], rows[1::2]])
