"""Phi 3 and 4: q, k and v in one matrix, gate and up in another, a rope over a part of each head, longrope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import windowed
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder
from tokenline.models.layers import GatedMlp
from tokenline.models.plain import plain
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotated_size
from tokenline.ops.base import Ops


def phi3(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config, eps=1e-5)
    require(config, "phi3", attention_bias=(False, None))
    inner = needed(config, "intermediate_size")

    def attention(name: str, rope: RopeTable | None) -> Attention:
        return Attention(ops, tensors, name, sizes, rope=rope, fused="qkv_proj")

    def mlp(name: str, index: int) -> GatedMlp:
        return GatedMlp(ops, tensors, name, width=sizes.width, inner=inner, fused="gate_up_proj")

    return plain(
        ops,
        config,
        tensors,
        sizes,
        context_length,
        family="phi3",
        attention=attention,
        mlp=mlp,
        kinds=[windowed(config)] * sizes.layers,
        rotated=rotated_size(config, sizes.head),
    )
