"""Llama and what shares its shape (SmolLM2, TinyLlama, …): rms norm, rope, grouped-query attention, gated MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import attention_cache
from tokenline.models.config import Sizes, require
from tokenline.models.decoder import Decoder, Layer, pre_norm_layer
from tokenline.models.head import Head, is_tied
from tokenline.models.layers import Embedding, GatedMlp, RmsNorm, pre_norms
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.ops.base import Ops


def llama(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config)
    require(config, "llama", hidden_act=("silu",))
    context = context_length or sizes.context_length
    attention_bias, mlp_bias = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    rope = RopeTable(ops, rotation_of(config, sizes.head, context), context)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = Attention(ops, tensors, f"{name}.self_attn", sizes, rope=rope, bias=attention_bias)
        mlp = GatedMlp(
            ops, tensors, f"{name}.mlp", width=sizes.width, inner=config["intermediate_size"], bias=mlp_bias
        )
        norms = pre_norms(ops, tensors, name, sizes.width, sizes.eps)
        return pre_norm_layer(index, attention, mlp, norms, attention_cache(ops, sizes))

    embedding = Embedding(ops, tensors, "model.embed_tokens", sizes.vocabulary, sizes.width)
    return Decoder(
        embedding=embedding,
        layers=[layer(index) for index in range(sizes.layers)],
        norm=RmsNorm(ops, tensors, "model.norm", sizes.width, sizes.eps),
        head=Head(ops, tensors, embedding, tied=is_tied(config, tensors)),
        context_length=context,
    )
