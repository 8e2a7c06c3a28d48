"""Qwen 3 Next and Qwen 3.5: the gated delta net, gated attention in every fourth layer; norms stored around zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tokenline.cache import RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, LINEAR, attention_cache, layer_types
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Block, Decoder, Layer, pre_norm_layer
from tokenline.models.delta_net import DeltaNet, DeltaSizes
from tokenline.models.expert_layouts import expert_parts
from tokenline.models.experts import Experts, MixtureOfExperts
from tokenline.models.forward import Forward
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, Linear, RmsNorm, Rows, pre_norms
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotated_size, rotation_of
from tokenline.models.routing import Router, softmax_then_choose
from tokenline.ops.base import Array, Ops

Parts = tuple[Sequence[tuple[str, int]], Sequence[Rows | None] | None]


def qwen3_next(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    """In a mixture of experts one expert is shared by all tokens, by a share of its own."""
    count = config.get("num_experts", config.get("num_local_experts", 0))
    width = needed(config, "hidden_size")
    dense, every = config.get("mlp_only_layers") or [], config.get("decoder_sparse_step", 1)

    def mlp(name: str, index: int) -> Block:
        if index in dense or not count or (index + 1) % every:
            inner = needed(config, "intermediate_size")
            return GatedMlp(ops, tensors, name, width=width, inner=inner)
        chosen, inner = needed(config, "num_experts_per_tok"), needed(config, "moe_intermediate_size")
        choice = softmax_then_choose(ops, chosen, normalize=bool(config.get("norm_topk_prob", True)))
        router = Router(ops, tensors, f"{name}.gate", width=width, experts=count, choice=choice)
        matrices, terms = expert_parts(ops, tensors, name, count, width, inner)
        experts = Experts(ops, matrices, ops.swiglu, terms=terms)
        shared = GatedMlp(
            ops,
            tensors,
            f"{name}.shared_expert",
            width=width,
            inner=needed(config, "shared_expert_intermediate_size"),
        )
        share = Linear(ops, tensors, [(f"{name}.shared_expert_gate", 1)], width)
        return MixtureOfExperts(router, experts, chosen=chosen, shared=_SharedExpert(ops, shared, share))

    return _qwen(ops, config, tensors, context_length, family="qwen3_next", mlp=mlp, parts=_by_key_head)


def qwen3_5(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    """The language model, alone or in a checkpoint that sees as well; text has one position for all three axes of its
    rotation, which is then an ordinary one."""
    text = {"tie_word_embeddings": config.get("tie_word_embeddings"), **config.get("text_config", config)}

    def mlp(name: str, index: int) -> Block:
        inner = needed(text, "intermediate_size")
        return GatedMlp(ops, tensors, name, width=text["hidden_size"], inner=inner)

    def parts(sizes: DeltaSizes) -> Parts:
        convolved = 2 * sizes.keys + sizes.values
        heads = sizes.value_heads
        named = (("qkv", convolved), ("z", sizes.values), ("b", heads), ("a", heads))
        return [(f"in_proj_{part}", count) for part, count in named], None

    return _qwen(ops, text, tensors, context_length, family="qwen3_5", mlp=mlp, parts=parts)


class _SharedExpert:
    def __init__(self, ops: Ops, mlp: GatedMlp, share: Linear) -> None:
        self._ops, self._mlp, self._share = ops, mlp, share
        self.nbytes = mlp.nbytes + share.nbytes

    def __call__(self, x: Array, forward: Forward | None = None, cache: Any = None) -> Array:
        return self._ops.sigmoid(self._share(x)) * self._mlp(x)


def _qwen(
    ops: Ops,
    config: Mapping[str, Any],
    tensors: Tensors,
    context_length: int | None,
    *,
    family: str,
    mlp: Callable[[str, int], Block],
    parts: Callable[[DeltaSizes], Parts],
) -> Decoder:
    require(config, family, hidden_act=("silu",))
    sizes = Sizes.of(config, head=256)
    net = DeltaSizes(
        width=sizes.width,
        key_heads=config.get("linear_num_key_heads", 16),
        value_heads=config.get("linear_num_value_heads", 32),
        key=config.get("linear_key_head_dim", 128),
        value=config.get("linear_value_head_dim", 128),
        taps=config.get("linear_conv_kernel_dim", 4),
    ).checked()
    context = context_length or sizes.context_length
    rotated = rotated_size(config, sizes.head, factor=0.25)
    rope = RopeTable(ops, rotation_of(config, rotated, context), context)
    every = config.get("full_attention_interval", 4)
    kinds = layer_types(config, sizes.layers, lambda index: LINEAR if (index + 1) % every else FULL)
    root = "model"
    if "model.language_model.embed_tokens.weight" in tensors:
        root = "model.language_model"
    for name in tensors.unused():
        if name.startswith(("model.visual.", "mtp.")):
            tensors.leave(name)

    def norm(name: str, width: int) -> RmsNorm:
        return RmsNorm(ops, tensors, name, width, sizes.eps, offset=1.0)

    def layer(index: int) -> Layer:
        name = f"{root}.layers.{index}"
        norms = pre_norms(ops, tensors, name, sizes.width, sizes.eps, offset=1.0)
        if kinds[index] == LINEAR:
            named, rows = parts(net)
            delta_net = DeltaNet(
                ops, tensors, f"{name}.linear_attn", net, parts=named, rows=rows, eps=sizes.eps
            )
            return pre_norm_layer(
                index,
                delta_net,
                mlp(f"{name}.mlp", index),
                norms,
                lambda: RecurrentCache(ops),
                mixer_name="delta_net",
            )
        cache = attention_cache(ops, sizes, kinds[index])
        attention = Attention(
            ops,
            tensors,
            f"{name}.self_attn",
            sizes,
            rope=rope,
            bias=bool(config.get("attention_bias")),
            norm=norm,
            gated=True,
        )
        return pre_norm_layer(index, attention, mlp(f"{name}.mlp", index), norms, cache)

    return framed(
        ops, config, tensors, sizes, layer, context, root=root, norm=norm(f"{root}.norm", sizes.width)
    )


def _by_key_head(sizes: DeltaSizes) -> Parts:
    """Qwen 3 Next stores q, k, v and z of one key head after another, and so b and a."""
    served = sizes.value_heads // sizes.key_heads

    def apart(*counts: int) -> Rows:
        def ordered(matrix: np.ndarray) -> np.ndarray:
            by_head = matrix.reshape(sizes.key_heads, sum(counts), *matrix.shape[1:])
            split = np.split(by_head, np.cumsum(counts)[:-1], axis=1)
            return np.concatenate([part.reshape(-1, *matrix.shape[1:]) for part in split])

        return ordered

    values = served * sizes.value
    return (
        [
            ("in_proj_qkvz", 2 * (sizes.keys + sizes.values)),
            ("in_proj_ba", 2 * sizes.value_heads),
        ],
        [apart(sizes.key, sizes.key, values, values), apart(served, served)],
    )
