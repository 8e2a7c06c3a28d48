"""Llama and what shares its shape (SmolLM2, TinyLlama, …): rms norm, rope, grouped-query attention, gated MLP.
Mistral's layers slide where it says a window; some of SmolLM 3's have no rope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, SLIDING, layer_types, windowed
from tokenline.models.config import Sizes, needed
from tokenline.models.decoder import Decoder
from tokenline.models.plain import plain
from tokenline.models.rope import RopeTable
from tokenline.ops.base import Ops


def llama(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    return _llama(ops, config, tensors, context_length, family="llama")


def mistral(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    kinds = layer_types(config, needed(config, "num_hidden_layers"), lambda _: windowed(config))
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
    sizes, bias = Sizes.of(config), bool(config.get("attention_bias"))

    def attention(name: str, rope: RopeTable | None) -> Attention:
        return Attention(ops, tensors, name, sizes, rope=rope, bias=bias)

    return plain(
        ops,
        config,
        tensors,
        sizes,
        context_length,
        family=family,
        attention=attention,
        kinds=kinds,
        ropes=ropes,
    )
