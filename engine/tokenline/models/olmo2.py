"""OLMo 2: norms after the blocks and none before, and a norm over the whole projection of q and of k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import attention_cache
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder, Layer, Residual
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, RmsNorm
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.ops.base import Ops


def olmo2(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config, eps=1e-5)
    require(config, "olmo2", hidden_act=("silu",), clip_qkv=(None,))
    inner, bias = needed(config, "intermediate_size"), bool(config.get("attention_bias"))
    context = context_length or sizes.context_length
    rope = RopeTable(ops, rotation_of(config, sizes.head, context), context)

    def norm(name: str, width: int = sizes.width) -> RmsNorm:
        return RmsNorm(ops, tensors, name, width, sizes.eps)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = Attention(
            ops, tensors, f"{name}.self_attn", sizes, rope=rope, bias=bias, norm=norm, norm_over="all"
        )
        mlp = GatedMlp(ops, tensors, f"{name}.mlp", width=sizes.width, inner=inner)
        return Layer(
            [
                Residual(
                    f"layers.{index}.attention", attention, after=norm(f"{name}.post_attention_layernorm")
                ),
                Residual(f"layers.{index}.mlp", mlp, after=norm(f"{name}.post_feedforward_layernorm")),
            ],
            attention_cache(ops, sizes),
        )

    return framed(ops, config, tensors, sizes, layer, context, norm=norm("model.norm"))
