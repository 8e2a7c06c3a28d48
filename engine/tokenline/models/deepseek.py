"""DeepSeek-V3: latent attention; after the first layers, experts chosen in groups beside one that everybody asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.cache import LatentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Block, Decoder, Layer, pre_norm_layer
from tokenline.models.expert_layouts import expert_parts
from tokenline.models.experts import Experts, MixtureOfExperts
from tokenline.models.frame import framed
from tokenline.models.latent_attention import LatentAttention, LatentSizes
from tokenline.models.layers import GatedMlp, pre_norms
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rope_settings, rotation_of, yarn_magnitude
from tokenline.models.routing import Router, grouped_choice
from tokenline.ops.base import Ops


def deepseek_v3(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config)
    require(
        config,
        "deepseek_v3",
        hidden_act=("silu",),
        scoring_func=("sigmoid",),
        topk_method=("noaux_tc",),
        moe_layer_freq=(1,),
    )
    context = context_length or sizes.context_length
    latent = LatentSizes(
        width=sizes.width,
        heads=sizes.heads,
        query_rank=config.get("q_lora_rank"),
        rank=needed(config, "kv_lora_rank"),
        rotated=needed(config, "qk_rope_head_dim"),
        plain=needed(config, "qk_nope_head_dim"),
        value=needed(config, "v_head_dim"),
    )
    rope = RopeTable(
        ops,
        rotation_of(config, latent.rotated, context),
        context,
        interleaved=config.get("rope_interleave", True),
    )
    scale = _scale(config, latent)
    first_mixture = config.get("first_k_dense_replace", 0)
    _leave_next_token_layers(config, tensors, sizes.layers)

    def mlp(name: str, index: int) -> Block:
        if index < first_mixture:
            return GatedMlp(ops, tensors, name, width=sizes.width, inner=needed(config, "intermediate_size"))
        return _mixture(ops, config, tensors, name, sizes.width)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = LatentAttention(
            ops,
            tensors,
            f"{name}.self_attn",
            latent,
            rope=rope,
            scale=scale,
            bias=bool(config.get("attention_bias")),
        )
        norms = pre_norms(ops, tensors, name, sizes.width, sizes.eps)
        return pre_norm_layer(
            index,
            attention,
            mlp(f"{name}.mlp", index),
            norms,
            lambda: LatentCache(ops, latent.rotated + latent.rank),
        )

    return framed(ops, config, tensors, sizes, layer, context)


def _scale(config: Mapping[str, Any], sizes: LatentSizes) -> float:
    """Of the scores: what yarn adds to their sharpness is here, and only the rest of it in the rotation."""
    _, scaling = rope_settings(config)
    weight = scaling.get("mscale_all_dim")
    sharpness = yarn_magnitude(scaling["factor"], weight) if weight and "factor" in scaling else 1.0
    return (sizes.rotated + sizes.plain) ** -0.5 * sharpness**2


def _mixture(
    ops: Ops, config: Mapping[str, Any], tensors: Tensors, name: str, width: int
) -> MixtureOfExperts:
    count = needed(config, "n_routed_experts", "num_local_experts")
    chosen, inner = needed(config, "num_experts_per_tok"), needed(config, "moe_intermediate_size")
    choice = grouped_choice(ops, config, tensors, f"{name}.gate", count, chosen)
    router = Router(ops, tensors, f"{name}.gate", width=width, experts=count, choice=choice)
    matrices, terms = expert_parts(ops, tensors, name, count, width, inner)
    experts = Experts(ops, matrices, ops.swiglu, terms=terms)
    shared = config.get("n_shared_experts")
    always = (
        GatedMlp(ops, tensors, f"{name}.shared_experts", width=width, inner=inner * shared)
        if shared
        else None
    )
    return MixtureOfExperts(router, experts, chosen=chosen, shared=always)


def _leave_next_token_layers(config: Mapping[str, Any], tensors: Tensors, layers: int) -> None:
    """The layers after the last, which draft further tokens, are no part of this network."""
    for extra in range(config.get("num_nextn_predict_layers") or 0):
        tensors.leave_under(f"model.layers.{layers + extra}.")
