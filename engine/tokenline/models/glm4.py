"""GLM 4: norms before and after every block, a rope over neighbours in half of each head, gate and up in one matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import attention_cache
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder, Layer, sandwich_layer
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, RmsNorm
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotated_size, rotation_of
from tokenline.ops.base import Ops


def glm4(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config)
    require(config, "glm4", hidden_act=("silu",))
    inner, bias = needed(config, "intermediate_size"), bool(config.get("attention_bias", True))
    context = context_length or sizes.context_length
    rotation = rotation_of(config, rotated_size(config, sizes.head, factor=0.5), context)
    rope = RopeTable(ops, rotation, context, interleaved=True)

    def norm(name: str) -> RmsNorm:
        return RmsNorm(ops, tensors, name, sizes.width, sizes.eps)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = Attention(ops, tensors, f"{name}.self_attn", sizes, rope=rope, bias=bias, out_bias=False)
        mlp = GatedMlp(ops, tensors, f"{name}.mlp", width=sizes.width, inner=inner, fused="gate_up_proj")
        return sandwich_layer(
            index,
            attention,
            mlp,
            (norm(f"{name}.input_layernorm"), norm(f"{name}.post_self_attn_layernorm")),
            (norm(f"{name}.post_attention_layernorm"), norm(f"{name}.post_mlp_layernorm")),
            attention_cache(ops, sizes),
        )

    return framed(ops, config, tensors, sizes, layer, context, norm=norm("model.norm"))
