"""Mixtral: Llama's attention, every MLP a mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import windowed
from tokenline.models.config import Sizes, needed
from tokenline.models.decoder import Decoder
from tokenline.models.expert_layouts import expert_parts
from tokenline.models.experts import Experts, MixtureOfExperts
from tokenline.models.plain import plain
from tokenline.models.rope import RopeTable
from tokenline.models.routing import Router, softmax_then_choose
from tokenline.ops.base import Ops


def mixtral(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config, eps=1e-5)
    count, chosen = needed(config, "num_local_experts"), needed(config, "num_experts_per_tok")
    inner = needed(config, "intermediate_size")

    def attention(name: str, rope: RopeTable | None) -> Attention:
        return Attention(ops, tensors, name, sizes, rope=rope)

    def mlp(name: str, index: int) -> MixtureOfExperts:
        if f"{name}.gate.weight" not in tensors:  # transformers 5 names the block as every other family does
            name = f"{name.removesuffix('mlp')}block_sparse_moe"
        choice = softmax_then_choose(ops, chosen, normalize=True)
        router = Router(ops, tensors, f"{name}.gate", width=sizes.width, experts=count, choice=choice)
        matrices, terms = expert_parts(ops, tensors, name, count, sizes.width, inner, ("w1", "w3", "w2"))
        return MixtureOfExperts(router, Experts(ops, matrices, ops.swiglu, terms=terms), chosen=chosen)

    return plain(
        ops,
        config,
        tensors,
        sizes,
        context_length,
        family="mixtral",
        attention=attention,
        mlp=mlp,
        kinds=[windowed(config)] * sizes.layers,
    )
