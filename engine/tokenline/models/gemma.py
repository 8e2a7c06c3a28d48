"""Gemma 2 (scores and logits under soft caps) and Gemma 3 (a norm over every head of q and k, a rope of its own where
a layer slides): norms before and after every block, weights of norms around zero, a scaled embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, SLIDING, attention_cache, layer_types
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder, Layer, sandwich_layer
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, RmsNorm
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import Rotation, rotation_of
from tokenline.models.text_part import text_part
from tokenline.ops.base import Ops

# What published configurations of Gemma 3 leave unsaid where it is as in transformers.
GEMMA3 = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
}


def gemma2(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config, head=256)
    context = context_length or sizes.context_length
    rotation = rotation_of(config, sizes.head, context)
    return _gemma(
        ops,
        config,
        tensors,
        sizes,
        context,
        family="gemma2",
        kinds=layer_types(config, sizes.layers, lambda index: FULL if index % 2 else SLIDING),
        rotations={SLIDING: rotation, FULL: rotation},
        head_norms=False,
        score_cap=config.get("attn_logit_softcapping", 50.0),
        logit_cap=config.get("final_logit_softcapping", 30.0),
    )


def gemma3(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    """Of a checkpoint that sees images too, the language model."""
    config, tensors = text_part(config, tensors)
    config = GEMMA3 | dict(config)
    # transformers takes it from the configuration and does nothing with it.
    require(config, "gemma3", attn_logit_softcapping=(None,))
    sizes = Sizes.of(config, head=256)
    context = context_length or sizes.context_length
    pattern = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or 6
    told_apart = SLIDING in (config.get("rope_parameters") or {})
    local_theta = None if told_apart else config.get("rope_local_base_freq", 10000.0)
    return _gemma(
        ops,
        config,
        tensors,
        sizes,
        context,
        family="gemma3",
        kinds=layer_types(config, sizes.layers, lambda index: SLIDING if (index + 1) % pattern else FULL),
        rotations={
            SLIDING: rotation_of(config, sizes.head, context, kind=SLIDING, theta=local_theta),
            FULL: rotation_of(config, sizes.head, context, kind=FULL),
        },
        head_norms=True,
        score_cap=None,
        logit_cap=config.get("final_logit_softcapping"),
    )


def _gemma(
    ops: Ops,
    config: Mapping[str, Any],
    tensors: Tensors,
    sizes: Sizes,
    context: int,
    *,
    family: str,
    kinds: list[str],
    rotations: Mapping[str, Rotation],
    head_norms: bool,
    score_cap: float | None,
    logit_cap: float | None,
) -> Decoder:
    require(config, family, use_bidirectional_attention=(False, None))
    inner, activation = needed(config, "intermediate_size"), config.get("hidden_activation")
    scale = config.get("query_pre_attn_scalar", 256) ** -0.5
    ropes = {kind: RopeTable(ops, rotation, context) for kind, rotation in rotations.items()}

    def norm(name: str, width: int = sizes.width) -> RmsNorm:
        return RmsNorm(ops, tensors, name, width, sizes.eps, offset=1.0)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        cache = attention_cache(ops, sizes, kinds[index], config.get("sliding_window", 4096))
        attention = Attention(
            ops,
            tensors,
            f"{name}.self_attn",
            sizes,
            rope=ropes[kinds[index]],
            bias=bool(config.get("attention_bias")),
            scale=scale,
            norm=norm if head_norms else None,
            cap=score_cap,
        )
        mlp = GatedMlp(
            ops,
            tensors,
            f"{name}.mlp",
            width=sizes.width,
            inner=inner,
            activation=activation or "gelu_pytorch_tanh",
        )
        around_attention = norm(f"{name}.input_layernorm"), norm(f"{name}.post_attention_layernorm")
        around_mlp = (
            norm(f"{name}.pre_feedforward_layernorm"),
            norm(f"{name}.post_feedforward_layernorm"),
        )
        return sandwich_layer(index, attention, mlp, around_attention, around_mlp, cache)

    return framed(
        ops,
        config,
        tensors,
        sizes,
        layer,
        context,
        norm=norm("model.norm"),
        embedding_scale=sizes.width**0.5,
        logit_cap=logit_cap,
    )
