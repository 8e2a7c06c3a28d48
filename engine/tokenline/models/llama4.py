"""Llama 4: three of four layers attend in chunks, with a rope and normed heads; the others to everything, without
positions and with a temperature that follows the length. Experts, of which a shared one is always asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import CHUNKED, FULL, attention_cache, layer_types
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Block, Decoder, Layer, pre_norm_layer
from tokenline.models.expert_layouts import expert_matrices, transposed_matrices
from tokenline.models.experts import Experts, MixtureOfExperts
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, pre_norms
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.models.routing import Router, choose_then_sigmoid
from tokenline.models.temperature import Temperature
from tokenline.models.text_part import text_part
from tokenline.ops.base import Ops


def llama4(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    """Of a checkpoint that sees images too, the language model."""
    config, tensors = text_part(config, tensors)
    require(config, "llama4", hidden_act=("silu",))
    sizes, bias = Sizes.of(config, head=128, eps=1e-5), bool(config.get("attention_bias"))
    context = context_length or sizes.context_length
    interval = config.get("no_rope_layer_interval", 4)
    turned = config.get("no_rope_layers") or [
        int((index + 1) % interval > 0) for index in range(sizes.layers)
    ]
    chunk = config.get("attention_chunk_size", 8192)
    kinds = layer_types(
        config, sizes.layers, lambda index: CHUNKED if turned[index] and chunk is not None else FULL
    )
    every = config.get("interleave_moe_layer_step", 1)
    mixtures = config.get("moe_layers")
    if mixtures is None:
        mixtures = range(every - 1, sizes.layers, every)
    rope = RopeTable(ops, rotation_of(config, sizes.head, context), context, interleaved=True)
    temperature = None
    if config.get("attn_temperature_tuning", True):
        temperature = Temperature(ops, config.get("attn_scale", 0.1), config.get("floor_scale", 8192))

    def mlp(name: str, index: int) -> Block:
        if index in mixtures:
            return _mixture(ops, config, tensors, name, sizes.width)
        inner = needed(config, "intermediate_size_mlp")
        return GatedMlp(ops, tensors, name, width=sizes.width, inner=inner)

    turned_norm = sizes.eps if config.get("use_qk_norm", True) else None

    def attention(name: str, index: int) -> Attention:
        if turned[index]:
            return Attention(ops, tensors, name, sizes, bias=bias, rope=rope, turned_norm=turned_norm)
        return Attention(ops, tensors, name, sizes, bias=bias, rope=None, temperature=temperature)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        mixer, block = attention(f"{name}.self_attn", index), mlp(f"{name}.feed_forward", index)
        norms = pre_norms(ops, tensors, name, sizes.width, sizes.eps)
        cache = attention_cache(ops, sizes, kinds[index], chunk)
        return pre_norm_layer(index, mixer, block, norms, cache)

    return framed(ops, config, tensors, sizes, layer, context)


def _mixture(
    ops: Ops, config: Mapping[str, Any], tensors: Tensors, name: str, width: int
) -> MixtureOfExperts:
    count, chosen = needed(config, "num_local_experts"), config.get("num_experts_per_tok", 1)
    inner = needed(config, "intermediate_size")
    choice = choose_then_sigmoid(ops, chosen)
    router = Router(ops, tensors, f"{name}.router", width=width, experts=count, choice=choice)
    stacked = f"{name}.experts.gate_up_proj" in tensors
    read = transposed_matrices if stacked else expert_matrices
    experts = Experts(ops, read(tensors, name, count, width, inner), ops.swiglu, shares_in=True)
    shared = GatedMlp(ops, tensors, f"{name}.shared_expert", width=width, inner=inner)
    return MixtureOfExperts(router, experts, chosen=chosen, shared=shared)
