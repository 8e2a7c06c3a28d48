"""Phi 3 and 4: q, k and v in one matrix, gate and up in another, a rope over a part of each head, longrope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, SLIDING, attention_cache
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder, Layer, pre_norm_layer
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, pre_norms
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotated_size, rotation_of
from tokenline.ops.base import Ops


def phi3(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config, eps=1e-5)
    require(config, "phi3", hidden_act=("silu",), attention_bias=(False, None))
    inner, window = needed(config, "intermediate_size"), config.get("sliding_window")
    context = context_length or sizes.context_length
    rope = RopeTable(ops, rotation_of(config, rotated_size(config, sizes.head), context), context)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = Attention(ops, tensors, f"{name}.self_attn", sizes, rope=rope, fused="qkv_proj")
        mlp = GatedMlp(ops, tensors, f"{name}.mlp", width=sizes.width, inner=inner, fused="gate_up_proj")
        norms = pre_norms(ops, tensors, name, sizes.width, sizes.eps)
        cache = attention_cache(ops, sizes, FULL if window is None else SLIDING, window)
        return pre_norm_layer(index, attention, mlp, norms, cache)

    return framed(ops, config, tensors, sizes, layer, context)
