"""Granite 4 (hybrid): Mamba 2 or attention, experts beside a shared MLP in every layer, a multiplier at every joint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.cache import RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import LINEAR, attention_cache, layer_types
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Block, Decoder, Layer, pre_norm_layer
from tokenline.models.expert_layouts import stacked_matrices
from tokenline.models.experts import Experts, MixtureOfExperts
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, pre_norms
from tokenline.models.mamba2 import GatedNorm, Mamba2, hybrid_sizes
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.models.routing import Router, choose_then_softmax
from tokenline.ops.base import Ops


def granitemoehybrid(
    ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None
) -> Decoder:
    require(
        config,
        "granitemoehybrid",
        position_embedding_type=(None, "nope", "rope"),
        hidden_act=("silu",),
    )
    sizes = Sizes.of(config)
    context = context_length or sizes.context_length
    kinds = layer_types(config, sizes.layers, lambda index: LINEAR)
    rope = None
    if config.get("position_embedding_type") == "rope":
        rope = RopeTable(ops, rotation_of(config, sizes.head, context), context)
    states = hybrid_sizes(config, sizes.width) if LINEAR in kinds else None

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        norms = pre_norms(ops, tensors, name, sizes.width, sizes.eps)
        scale = float(config.get("residual_multiplier", 1.0))
        mlp = _mlp(ops, config, tensors, name, sizes.width)
        if kinds[index] != LINEAR or states is None:
            cache = attention_cache(ops, sizes, kinds[index])
            attention = Attention(
                ops,
                tensors,
                f"{name}.self_attn",
                sizes,
                rope=rope,
                bias=bool(config.get("attention_bias")),
                scale=float(config.get("attention_multiplier", 1.0)),
            )
            return pre_norm_layer(index, attention, mlp, norms, cache, scale=scale)
        mamba = Mamba2(
            ops,
            tensors,
            f"{name}.mamba",
            states,
            norm=GatedNorm(
                ops, tensors, f"{name}.mamba.norm", inner=states.inner, groups=states.groups, eps=sizes.eps
            ),
            bias=bool(config.get("mamba_proj_bias")),
            convolution_bias=bool(config.get("mamba_conv_bias", True)),
        )
        return pre_norm_layer(
            index, mamba, mlp, norms, lambda: RecurrentCache(ops), mixer_name="mamba", scale=scale
        )

    return framed(
        ops,
        config,
        tensors,
        sizes,
        layer,
        context,
        embedding_scale=float(config.get("embedding_multiplier", 1.0)),
        logit_scale=1.0 / float(config.get("logits_scaling", 1.0)),
    )


def _mlp(ops: Ops, config: Mapping[str, Any], tensors: Tensors, layer: str, width: int) -> Block:
    """What every token passes, beside a mixture of experts where there are any."""
    shared = GatedMlp(
        ops,
        tensors,
        f"{layer}.shared_mlp",
        width=width,
        inner=needed(config, "shared_intermediate_size"),
        fused="input_linear",
        down="output_linear",
    )
    count = config.get("num_local_experts")
    if not count:
        return shared
    name, chosen = f"{layer}.block_sparse_moe", needed(config, "num_experts_per_tok")
    router = Router(
        ops,
        tensors,
        f"{name}.router.layer",
        width=width,
        experts=count,
        choice=choose_then_softmax(ops, chosen),
    )
    names = f"{name}.input_linear.weight", f"{name}.output_linear.weight"
    matrices = stacked_matrices(tensors, names, count, width, needed(config, "intermediate_size"))
    return MixtureOfExperts(router, Experts(ops, matrices, ops.swiglu), chosen=chosen, shared=shared)
