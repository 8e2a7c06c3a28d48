"""Llama and what shares its shape (SmolLM2, TinyLlama, …): rms norm, rope, grouped-query attention, gated MLP.
Mistral's layers slide where it says a window; some of SmolLM 3's have no rope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, SLIDING, attention_cache, layer_types
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder, Layer, pre_norm_layer
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, pre_norms
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.ops.base import Ops


def llama(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    return _llama(ops, config, tensors, context_length, family="llama")


def mistral(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    kind = FULL if config.get("sliding_window") is None else SLIDING
    kinds = layer_types(config, needed(config, "num_hidden_layers"), lambda _: kind)
    return _llama(ops, config, tensors, context_length, family="mistral", kinds=kinds)


def smollm3(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    layers = needed(config, "num_hidden_layers")
    interval = config.get("no_rope_layer_interval", 4)
    ropes = config.get("no_rope_layers") or [(index + 1) % interval for index in range(layers)]
    if len(ropes) != layers:
        raise CheckpointError(
            f"no_rope_layers names {len(ropes)} layers, the model has {layers}", "mend config.json"
        )
    slides = config.get("use_sliding_window") and config.get("sliding_window") is not None
    kinds = layer_types(config, layers, lambda index: SLIDING if slides and not ropes[index] else FULL)
    return _llama(ops, config, tensors, context_length, family="smollm3", kinds=kinds, ropes=ropes)


def _llama(
    ops: Ops,
    config: Mapping[str, Any],
    tensors: Tensors,
    context_length: int | None,
    *,
    family: str,
    kinds: Sequence[str] | None = None,
    ropes: Sequence[Any] | None = None,
) -> Decoder:
    """`ropes`: whether each layer is told positions; None: all are."""
    sizes = Sizes.of(config)
    require(config, family, hidden_act=("silu",))
    inner = needed(config, "intermediate_size")
    context = context_length or sizes.context_length
    attention_bias, mlp_bias = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    rope = RopeTable(ops, rotation_of(config, sizes.head, context), context)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = Attention(
            ops,
            tensors,
            f"{name}.self_attn",
            sizes,
            rope=rope if ropes is None or ropes[index] else None,
            bias=attention_bias,
        )
        mlp = GatedMlp(ops, tensors, f"{name}.mlp", width=sizes.width, inner=inner, bias=mlp_bias)
        norms = pre_norms(ops, tensors, name, sizes.width, sizes.eps)
        kind = FULL if kinds is None else kinds[index]
        cache = attention_cache(ops, sizes, kind, config.get("sliding_window"))
        return pre_norm_layer(index, attention, mlp, norms, cache)

    return framed(ops, config, tensors, sizes, layer, context)
