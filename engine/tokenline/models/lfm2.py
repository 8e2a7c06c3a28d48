"""LFM2: short convolutions, with grouped-query attention (q and k normed by head) in some layers; gated MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.cache import RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, attention_cache, layer_types
from tokenline.models.config import Sizes, needed
from tokenline.models.convolution import ShortConvolution
from tokenline.models.decoder import Decoder, Layer, pre_norm_layer
from tokenline.models.frame import framed
from tokenline.models.head import is_tied
from tokenline.models.layers import GatedMlp, RmsNorm
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.ops.base import Ops

CONVOLUTION = "conv"


def lfm2(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config, eps=config.get("norm_eps", 1e-5))
    context = context_length or sizes.context_length
    rope = RopeTable(ops, rotation_of(_with_theta(config), sizes.head, context), context)
    attending = config.get("full_attn_idxs", range(sizes.layers))
    kinds = layer_types(config, sizes.layers, lambda index: FULL if index in attending else CONVOLUTION)
    inner, taps = _inner(config), config.get("conv_L_cache", 3)

    def norm(name: str, width: int) -> RmsNorm:
        return RmsNorm(ops, tensors, name, width, sizes.eps)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        mlp = GatedMlp(
            ops,
            tensors,
            f"{name}.feed_forward",
            width=sizes.width,
            inner=inner,
            gate_up=("w1", "w3"),
            down="w2",
        )
        norms = norm(f"{name}.operator_norm", sizes.width), norm(f"{name}.ffn_norm", sizes.width)
        if kinds[index] == CONVOLUTION:
            convolution = ShortConvolution(
                ops,
                tensors,
                f"{name}.conv",
                width=sizes.width,
                taps=taps,
                bias=bool(config.get("conv_bias")),
            )
            return pre_norm_layer(
                index, convolution, mlp, norms, lambda: RecurrentCache(ops), mixer_name="convolution"
            )
        cache = attention_cache(ops, sizes, kinds[index])
        attention = Attention(
            ops,
            tensors,
            f"{name}.self_attn",
            sizes,
            rope=rope,
            out="out_proj",
            norm=lambda name, width: norm(name.replace("_norm", "_layernorm"), width),
        )
        return pre_norm_layer(index, attention, mlp, norms, cache)

    tied = is_tied(
        {"tie_word_embeddings": config.get("tie_embedding", config.get("tie_word_embeddings", True))}, tensors
    )
    return framed(
        ops, config, tensors, sizes, layer, context, norm=norm("model.embedding_norm", sizes.width), tied=tied
    )


def _with_theta(config: Mapping[str, Any]) -> Mapping[str, Any]:
    told = "rope_theta" in config or config.get("rope_parameters")
    return config if told else {**config, "rope_theta": 1e6}


def _inner(config: Mapping[str, Any]) -> int:
    """The MLP's width: two thirds of what is told, stretched and rounded up, unless it is told as it is."""
    inner = config.get("block_ff_dim") or needed(config, "intermediate_size")
    if not config.get("block_auto_adjust_ff_dim", True):
        return inner
    inner = int(2 * inner / 3)
    stretch = config.get("block_ffn_dim_multiplier", 1.0)
    if stretch is None:
        return inner
    multiple = config.get("block_multiple_of", 256)
    return -(-int(stretch * inner) // multiple) * multiple
