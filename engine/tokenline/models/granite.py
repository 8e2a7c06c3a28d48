"""Granite and MiniCPM: a llama whose embedding, residual blocks, scores and logits are multiplied.

MiniCPM says its multipliers by what they follow from: `scale_depth` over the square root of the depth, and the width
over the one that they were tuned at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder
from tokenline.models.plain import plain
from tokenline.models.rope import RopeTable
from tokenline.ops.base import Ops


@dataclass(frozen=True)
class Multipliers:
    embedding: float
    residual: float
    scores: float | None  # None: as usual, by the size of a head
    logits: float


def granite(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    multipliers = Multipliers(
        embedding=config.get("embedding_multiplier", 1.0),
        residual=config.get("residual_multiplier", 1.0),
        scores=config.get("attention_multiplier", 1.0),
        logits=1.0 / config.get("logits_scaling", 1.0),
    )
    return _multiplied(ops, config, tensors, context_length, "granite", multipliers)


def minicpm(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    require(config, "minicpm", sparse_config=(None,), num_experts=(None, 0))
    multipliers = Multipliers(
        embedding=config.get("scale_emb", 1.0),
        residual=config.get("scale_depth", 1.0) / needed(config, "num_hidden_layers") ** 0.5,
        scores=None,
        logits=config.get("dim_model_base", 1) / needed(config, "hidden_size"),
    )
    return _multiplied(ops, config, tensors, context_length, "minicpm", multipliers)


def _multiplied(
    ops: Ops,
    config: Mapping[str, Any],
    tensors: Tensors,
    context_length: int | None,
    family: str,
    multipliers: Multipliers,
) -> Decoder:
    sizes, bias = Sizes.of(config), bool(config.get("attention_bias"))

    def attention(name: str, rope: RopeTable | None) -> Attention:
        return Attention(ops, tensors, name, sizes, rope=rope, bias=bias, scale=multipliers.scores)

    return plain(
        ops,
        config,
        tensors,
        sizes,
        context_length,
        family=family,
        attention=attention,
        scale=multipliers.residual,
        embedding_scale=multipliers.embedding,
        logit_scale=multipliers.logits,
    )
