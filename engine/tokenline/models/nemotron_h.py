"""Nemotron-H: one block in each layer by a pattern: Mamba 2, attention without positions, an MLP of squared relu, a
mixture of such MLPs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenline.cache import LayerCache, RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, LINEAR, attention_cache, layer_types
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Block, Decoder, Layer, Residual
from tokenline.models.experts import Experts, MixtureOfExperts
from tokenline.models.head import Head, is_tied
from tokenline.models.layers import Embedding, Linear, RmsNorm, SquaredReluMlp, squared_relu
from tokenline.models.mamba2 import published_mixer, published_sizes
from tokenline.models.routing import Router, grouped_choice
from tokenline.ops.base import Ops

MLP, EXPERTS = "mlp", "moe"
_PATTERN = {"M": LINEAR, "*": FULL, "-": MLP, "E": EXPERTS}
# A block's name in taps.
_NAMES = {LINEAR: "mamba", FULL: "attention", MLP: "mlp", EXPERTS: "mlp"}


def nemotron_h(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    require(
        config, "nemotron_h", mlp_hidden_act=("relu2",), mamba_hidden_act=("silu",), sliding_window=(None,)
    )
    require(config, "nemotron_h", mamba_proj_bias=(bool(config.get("use_bias")),))
    for name in tensors.unused():
        if name.startswith("mtp."):  # layers that draft further tokens
            tensors.leave(name)
    kinds = _kinds(config)
    config = {**config, "num_hidden_layers": len(kinds)}
    sizes = Sizes.of(
        config, head=config.get("attention_head_dim"), eps=config.get("layer_norm_epsilon", 1e-5)
    )
    states = published_sizes(
        config, sizes.width, heads="mamba_num_heads", head="mamba_head_dim", state="ssm_state_size"
    )

    def residual(index: int) -> Residual:
        name, kind = f"backbone.layers.{index}", kinds[index]
        block: Block
        if kind == LINEAR:
            block = published_mixer(ops, config, tensors, f"{name}.mixer", states, sizes.eps)
        elif kind == FULL:
            bias = bool(config.get("attention_bias"))
            block = Attention(ops, tensors, f"{name}.mixer", sizes, rope=None, bias=bias)
        elif kind == EXPERTS:
            block = _experts(ops, config, tensors, f"{name}.mixer", sizes.width)
        else:
            block = SquaredReluMlp(
                ops,
                tensors,
                f"{name}.mixer",
                width=sizes.width,
                inner=needed(config, "intermediate_size"),
                bias=bool(config.get("mlp_bias")),
            )
        before = RmsNorm(ops, tensors, f"{name}.norm", sizes.width, sizes.eps)
        return Residual(f"layers.{index}.{_NAMES[kind]}", block, before=before)

    def cache(kind: str) -> Callable[[], LayerCache]:
        return (lambda: RecurrentCache(ops)) if kind == LINEAR else attention_cache(ops, sizes, kind)

    embedding = Embedding(ops, tensors, "backbone.embeddings", sizes.vocabulary, sizes.width)
    return Decoder(
        embedding=embedding,
        layers=[
            Layer([residual(index) for index in group], cache(kind)) for kind, group in _with_memory(kinds)
        ],
        norm=RmsNorm(ops, tensors, "backbone.norm_f", sizes.width, sizes.eps),
        head=Head(ops, tensors, embedding, tied=is_tied(config, tensors)),
        context_length=context_length or sizes.context_length,
    )


def _kinds(config: Mapping[str, Any]) -> list[str]:
    pattern = config.get("hybrid_override_pattern")
    told = config.get("layers_block_type") or config.get("layer_types")
    if told is None:
        if not pattern or set(pattern) - set(_PATTERN):
            raise CheckpointError(
                f"the pattern of layers {pattern!r} is none", f"it is made of {' '.join(_PATTERN)}"
            )
        told = [_PATTERN[sign] for sign in pattern]
    kinds = layer_types({"layer_types": told}, len(told), lambda index: LINEAR)
    for kind in kinds:
        require({"layers_block_type": kind}, "nemotron_h", layers_block_type=tuple(_NAMES))
    return kinds


def _with_memory(kinds: list[str]) -> list[tuple[str, list[int]]]:
    """Blocks in groups that share a cache: one that remembers and the MLPs after it (or before the first)."""
    groups: list[tuple[str, list[int]]] = []
    waiting: list[int] = []
    for index, kind in enumerate(kinds):
        if kind in (LINEAR, FULL):
            groups.append((kind, [*waiting, index]))
            waiting = []
        elif groups:
            groups[-1][1].append(index)
        else:
            waiting.append(index)
    if waiting:
        raise CheckpointError(
            "no layer remembers anything", "a model of MLPs alone is none; mend config.json"
        )
    return groups


def _experts(
    ops: Ops, config: Mapping[str, Any], tensors: Tensors, name: str, width: int
) -> MixtureOfExperts:
    require(config, "nemotron_h", n_shared_experts=(1,))
    count, chosen = needed(config, "n_routed_experts"), needed(config, "num_experts_per_tok")
    inner, bias = needed(config, "moe_intermediate_size"), bool(config.get("mlp_bias"))
    choice = grouped_choice(ops, config, tensors, f"{name}.gate", count, chosen)
    # Where there is a latent, experts read and write it instead of the stream.
    latent_size, latent = config.get("moe_latent_size"), None
    if latent_size is not None:
        latent = (
            Linear(ops, tensors, [(f"{name}.fc1_latent_proj", latent_size)], width, bias=bias),
            Linear(ops, tensors, [(f"{name}.fc2_latent_proj", width)], latent_size, bias=bias),
        )
    read = latent_size or width
    ups, downs = (
        [tensors.take(f"{name}.experts.{expert}.{part}.weight", shape) for expert in range(count)]
        for part, shape in (("up_proj", (inner, read)), ("down_proj", (read, inner)))
    )
    return MixtureOfExperts(
        Router(ops, tensors, f"{name}.gate", width=width, experts=count, choice=choice),
        Experts(ops, (ups, downs), lambda up: squared_relu(ops, up)),
        chosen=chosen,
        shared=SquaredReluMlp(
            ops,
            tensors,
            f"{name}.shared_experts",
            width=width,
            inner=needed(config, "moe_shared_expert_intermediate_size"),
            bias=bias,
        ),
        latent=latent,
    )
