"""Qwen 2 (biases on q, k and v) and Qwen 3 (a norm over every head of q and k instead), also with mixtures of experts;
upper layers may slide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, SLIDING, layer_types
from tokenline.models.config import Sizes, needed
from tokenline.models.decoder import Block, Decoder
from tokenline.models.expert_layouts import expert_parts
from tokenline.models.experts import Experts, MixtureOfExperts
from tokenline.models.layers import GatedMlp, RmsNorm
from tokenline.models.plain import plain
from tokenline.models.rope import RopeTable
from tokenline.models.routing import Router, softmax_then_choose
from tokenline.ops.base import Ops


def qwen2(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    return _qwen(ops, config, tensors, context_length, family="qwen2", bias=True, norms=False)


def qwen3(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    bias = bool(config.get("attention_bias"))
    return _qwen(ops, config, tensors, context_length, family="qwen3", bias=bias, norms=True)


def qwen3_moe(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    count = needed(config, "num_experts", "num_local_experts")  # the latter in transformers 5
    chosen = needed(config, "num_experts_per_tok")
    width, inner = needed(config, "hidden_size"), needed(config, "moe_intermediate_size")
    dense, every = config.get("mlp_only_layers") or [], config.get("decoder_sparse_step", 1)

    def mlp(name: str, index: int) -> Block:
        if index in dense or (index + 1) % every:
            return GatedMlp(ops, tensors, name, width=width, inner=needed(config, "intermediate_size"))
        choice = softmax_then_choose(ops, chosen, normalize=bool(config.get("norm_topk_prob")))
        router = Router(ops, tensors, f"{name}.gate", width=width, experts=count, choice=choice)
        matrices, terms = expert_parts(ops, tensors, name, count, width, inner)
        experts = Experts(ops, matrices, ops.swiglu, terms=terms)
        return MixtureOfExperts(router, experts, chosen=chosen)

    bias = bool(config.get("attention_bias"))
    return _qwen(ops, config, tensors, context_length, family="qwen3_moe", bias=bias, norms=True, mlp=mlp)


def _qwen(
    ops: Ops,
    config: Mapping[str, Any],
    tensors: Tensors,
    context_length: int | None,
    *,
    family: str,
    bias: bool,
    norms: bool,
    mlp: Callable[[str, int], Block] | None = None,
) -> Decoder:
    sizes = Sizes.of(config)
    slides_from = (
        config.get("max_window_layers", sizes.layers) if config.get("use_sliding_window") else sizes.layers
    )

    def norm(name: str, width: int) -> RmsNorm:
        return RmsNorm(ops, tensors, name, width, sizes.eps)

    def attention(name: str, rope: RopeTable | None) -> Attention:
        return Attention(
            ops,
            tensors,
            name,
            sizes,
            rope=rope,
            bias=bias,
            out_bias=bias and norms,
            norm=norm if norms else None,
        )

    return plain(
        ops,
        config,
        tensors,
        sizes,
        context_length,
        family=family,
        attention=attention,
        mlp=mlp,
        kinds=layer_types(config, sizes.layers, lambda index: SLIDING if index >= slides_from else FULL),
    )
