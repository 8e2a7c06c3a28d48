"""Cohere 2: attention and MLP read one norm side by side, three of four layers slide, and only those have a rope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.cache import AttentionCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import FULL, SLIDING, attention_cache, layer_types
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder, Layer, Residual
from tokenline.models.forward import Forward
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, LayerNorm
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.ops.base import Array, Ops


class ParallelBlock:
    """What attention and MLP say of the same normed stream, added."""

    def __init__(self, attention: Attention, mlp: GatedMlp) -> None:
        self._attention, self._mlp = attention, mlp

    @property
    def nbytes(self) -> int:
        return self._attention.nbytes + self._mlp.nbytes

    def __call__(self, x: Array, forward: Forward, cache: AttentionCache) -> Array:
        return self._attention(x, forward, cache) + self._mlp(x)


def cohere2(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    sizes = Sizes.of(config)
    require(
        config,
        "cohere2",
        hidden_act=("silu",),
        layer_norm_bias=(False, None),
        use_qk_norm=(False, None),
        use_gated_activation=(True, None),
        use_parallel_block=(True, None),
        order_of_interleaved_layers=("local_attn_first", None),
        position_embedding_type=("rope_gptj", None),
        rotary_pct=(1.0, None),
    )
    inner, bias = needed(config, "intermediate_size"), bool(config.get("attention_bias"))
    eps = config.get("layer_norm_eps", 1e-5)
    context = context_length or sizes.context_length
    rope = RopeTable(ops, rotation_of(config, sizes.head, context), context, interleaved=True)
    pattern = config.get("sliding_window_pattern") or 4
    kinds = layer_types(config, sizes.layers, lambda index: SLIDING if (index + 1) % pattern else FULL)

    def norm(name: str) -> LayerNorm:
        return LayerNorm(ops, tensors, name, sizes.width, eps)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        slides = kinds[index] == SLIDING
        attention = Attention(
            ops, tensors, f"{name}.self_attn", sizes, rope=rope if slides else None, bias=bias
        )
        mlp = GatedMlp(ops, tensors, f"{name}.mlp", width=sizes.width, inner=inner)
        block = ParallelBlock(attention, mlp)
        cache = attention_cache(ops, sizes, kinds[index], config.get("sliding_window", 4096))
        return Layer(
            [Residual(f"layers.{index}.parallel", block, before=norm(f"{name}.input_layernorm"))], cache
        )

    return framed(
        ops,
        config,
        tensors,
        sizes,
        layer,
        context,
        norm=norm("model.norm"),
        logit_scale=config.get("logit_scale", 0.0625),
    )
