"""Falcon-H1: attention and Mamba 2 read the same input in every layer and add up; a multiplier at every joint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tokenline.cache import PairCache, RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.attention import Attention
from tokenline.models.attention_caches import attention_cache
from tokenline.models.config import Sizes, needed, require
from tokenline.models.decoder import Decoder, Layer, Residual
from tokenline.models.forward import Forward
from tokenline.models.frame import framed
from tokenline.models.layers import GatedMlp, RmsNorm
from tokenline.models.mamba2 import GatedNorm, Mamba2, StateSizes, hybrid_sizes
from tokenline.models.rope import RopeTable
from tokenline.models.rope_scaling import rotation_of
from tokenline.ops.base import Array, Ops


class _SideBySide:
    """Both mixers over one input, each with a multiplier before and after it."""

    def __init__(
        self,
        attention: Attention,
        mamba: Mamba2,
        *,
        attention_scales: tuple[float, float],
        mamba_scales: tuple[float, float],
    ) -> None:
        self._attention, self._mamba = attention, mamba
        self._attention_scales, self._mamba_scales = attention_scales, mamba_scales

    @property
    def nbytes(self) -> int:
        return self._attention.nbytes + self._mamba.nbytes

    def __call__(self, x: Array, forward: Forward, cache: PairCache) -> Array:
        before, after = self._mamba_scales
        said = self._mamba(x * before, forward, cache.recurrent) * after
        before, after = self._attention_scales
        return said + self._attention(x * before, forward, cache.attention) * after


def falcon_h1(ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None) -> Decoder:
    require(config, "falcon_h1", hidden_act=("silu",))
    sizes = Sizes.of(config, eps=1e-5)
    states = hybrid_sizes(config, sizes.width, inner=config.get("mamba_d_ssm"))
    context = context_length or sizes.context_length
    rope = RopeTable(ops, rotation_of(config, sizes.head, context), context)
    projection_scales = _projection_scales(config, states)
    gate_scale, down_scale = config.get("mlp_multipliers") or (1.0, 1.0)
    new_attention = attention_cache(ops, sizes)

    def multiplier(key: str) -> float:
        return float(config.get(f"{key}_multiplier", 1.0))

    def norm(name: str) -> RmsNorm:
        return RmsNorm(ops, tensors, name, sizes.width, sizes.eps)

    def layer(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = Attention(
            ops,
            tensors,
            f"{name}.self_attn",
            sizes,
            rope=rope,
            bias=bool(config.get("attention_bias")),
            scale=multiplier("key") * sizes.head**-0.5,
        )
        gated_norm = None
        if config.get("mamba_rms_norm"):
            gated_norm = GatedNorm(
                ops,
                tensors,
                f"{name}.mamba.norm",
                inner=states.inner,
                groups=states.groups,
                eps=sizes.eps,
                gate_first=not config.get("mamba_norm_before_gate", True),
            )
        mamba = Mamba2(
            ops,
            tensors,
            f"{name}.mamba",
            states,
            norm=gated_norm,
            bias=bool(config.get("mamba_proj_bias")),
            out_bias=bool(config.get("projectors_bias")),
            convolution_bias=bool(config.get("mamba_conv_bias", True)),
            scale=projection_scales,
        )
        mixer = _SideBySide(
            attention,
            mamba,
            attention_scales=(multiplier("attention_in"), multiplier("attention_out")),
            mamba_scales=(multiplier("ssm_in"), multiplier("ssm_out")),
        )
        mlp = GatedMlp(
            ops,
            tensors,
            f"{name}.feed_forward",
            width=sizes.width,
            inner=needed(config, "intermediate_size"),
            bias=bool(config.get("mlp_bias")),
            gate_scale=gate_scale,
        )
        return Layer(
            [
                Residual(f"layers.{index}.mixer", mixer, before=norm(f"{name}.input_layernorm")),
                Residual(
                    f"layers.{index}.mlp", mlp, before=norm(f"{name}.pre_ff_layernorm"), scale=down_scale
                ),
            ],
            new_cache,
        )

    def new_cache() -> PairCache:
        return PairCache(new_attention(), RecurrentCache(ops))

    return framed(
        ops,
        config,
        tensors,
        sizes,
        layer,
        context,
        norm=norm("model.final_layernorm"),
        embedding_scale=multiplier("embedding"),
        logit_scale=multiplier("lm_head"),
    )


def _projection_scales(config: Mapping[str, Any], states: StateSizes) -> np.ndarray:
    """`ssm_multipliers` are of the gate, x, b, c and the steps."""
    shared = states.groups * states.state
    counts = (states.inner, states.inner, shared, shared, states.heads)
    return np.repeat(np.asarray(config.get("ssm_multipliers") or [1.0] * 5, np.float32), counts)
