"""Families whose layers are attention and an MLP, each after a norm of its own: what differs is what those two are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, attention_cache
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Block, Decoder, Layer, pre_norm_layer
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, pre_norms
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.ops.base import Ops


def plain(
    ops: Ops,
    config: Mapping[str, Any],
    tensors: Tensors,
    sizes: Sizes,
    context_length: int | None,
    *,
    family: str,
    attention: Callable[[str, RopeTable | None], Attention],
    mlp: Callable[[str, int], Block] | None = None,
    kinds: Sequence[str] | None = None,
    ropes: Sequence[Any] | None = None,
    rotated: int | None = None,
    scale: float = 1.0,
    embedding_scale: float = 1.0,
    logit_scale: float = 1.0,
) -> Decoder:
    """`attention` makes a layer's by its name in the checkpoint; `mlp` by its name and the layer's index, a gated one
    with the configuration's bias unless it is given. `kinds` says which attention each layer has (full), `ropes`
    whether each is told positions (all are), `rotated` how much of a head is turned (all of it); what each block adds
    is multiplied by `scale`."""
    require(config, family, hidden_act=("silu",))
    context = context_length or sizes.context_length
    rope = RopeTable(ops, rotation_of(config, rotated or sizes.head, context), context)

    def gated(name: str, index: int) -> Block:
        inner, bias = needed(config, "intermediate_size"), bool(config.get("mlp_bias"))
        return GatedMlp(ops, tensors, name, width=sizes.width, inner=inner, bias=bias)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        kind = FULL if kinds is None else kinds[index]
        return pre_norm_layer(
            index,
            attention(f"{name}.self_attn", rope if ropes is None or ropes[index] else None),
            (mlp or gated)(f"{name}.mlp", index),
            pre_norms(ops, tensors, name, sizes.width, sizes.eps),
            attention_cache(ops, sizes, kind, config.get("sliding_window")),
            scale=scale,
        )

    return framed(
        ops, config, tensors, sizes, layer, context, embedding_scale=embedding_scale, logit_scale=logit_scale
    )
