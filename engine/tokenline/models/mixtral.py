"""Mixtral: Llama's attention, every MLP a mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, SLIDING, attention_cache
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder, Layer, pre_norm_layer
from tokenline.models.expert_layouts import expert_matrices
from tokenline.models.experts import Experts, MixtureOfExperts
from tokenline.models.frame import framed
from tokenline.models.layers import pre_norms
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.models.routing import Router, softmax_then_choose
from tokenline.ops.base import Ops


def mixtral(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config, eps=1e-5)
    require(config, "mixtral", hidden_act=("silu",))
    count, chosen = needed(config, "num_local_experts"), needed(config, "num_experts_per_tok")
    inner, window = needed(config, "intermediate_size"), config.get("sliding_window")
    context = context_length or sizes.context_length
    rope = RopeTable(ops, rotation_of(config, sizes.head, context), context)
    new_cache = attention_cache(ops, sizes, FULL if window is None else SLIDING, window)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        # transformers 5 names the block as every other family does.
        mlp = f"{name}.mlp" if f"{name}.mlp.gate.weight" in tensors else f"{name}.block_sparse_moe"
        choice = softmax_then_choose(ops, chosen, normalize=True)
        router = Router(ops, tensors, f"{mlp}.gate", width=sizes.width, experts=count, choice=choice)
        matrices = expert_matrices(tensors, mlp, count, sizes.width, inner, ("w1", "w3", "w2"))
        experts = Experts(ops, matrices, ops.swiglu)
        attention = Attention(ops, tensors, f"{name}.self_attn", sizes, rope=rope)
        norms = pre_norms(ops, tensors, name, sizes.width, sizes.eps)
        return pre_norm_layer(
            index, attention, MixtureOfExperts(router, experts, chosen=chosen), norms, new_cache
        )

    return framed(ops, config, tensors, sizes, layer, context)
