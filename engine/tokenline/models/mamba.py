"""Mamba 2: a stack of state spaces, each after a norm; no attention, no MLP, no positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.cache import RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.config import needed, require
from tokenline.models.decoder import Decoder, Layer, Residual
from tokenline.models.head import Head, is_tied
from tokenline.models.layers import Embedding, RmsNorm
from tokenline.models.mamba2 import published_mixer, published_sizes
from tokenline.ops.base import Ops

# A state space has no longest text; an engine wants a number.
CONTEXT = 2**20


def mamba2(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    """`norm_before_gate` in published configurations is not read: every one says true, every model gates first."""
    require(config, "mamba2", hidden_act=("silu",), rms_norm=(True,))
    width = needed(config, "hidden_size")
    sizes = published_sizes(config, width, heads="num_heads", head="head_dim", state="state_size")
    eps = config.get("layer_norm_epsilon", 1e-5)

    def layer(index: int) -> Layer:
        name = f"backbone.layers.{index}"
        mixer = published_mixer(ops, config, tensors, f"{name}.mixer", sizes, eps)
        before = RmsNorm(ops, tensors, f"{name}.norm", sizes.width, eps)
        return Layer([Residual(f"layers.{index}.mamba", mixer, before=before)], lambda: RecurrentCache(ops))

    embedding = Embedding(ops, tensors, "backbone.embeddings", needed(config, "vocab_size"), sizes.width)
    return Decoder(
        embedding=embedding,
        layers=[layer(index) for index in range(needed(config, "num_hidden_layers"))],
        norm=RmsNorm(ops, tensors, "backbone.norm_f", sizes.width, eps),
        head=Head(ops, tensors, embedding, tied=is_tied(config, tensors)),
        context_length=context_length or config.get("max_position_embeddings", CONTEXT),
    )
