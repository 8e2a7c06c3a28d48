"""Architectures that are dense."""

from __future__ import annotations

from typing import Any

from tokenline.checkpoint.gguf.architecture import (
    ATTENTION,
    BLOCK,
    DENSE,
    HEAD_NORMS,
    MLP,
    OUTSIDE,
    PAIRED,
    Architecture,
    Matrix,
)
from tokenline.checkpoint.gguf.rope import PARTIAL_ROPE, head_size
from tokenline.checkpoint.gguf.said import Said, has, number, whole
from tokenline.checkpoint.gguf.undo import around_zero

MULTIPLIERS = {
    "attention_multiplier": number("attention.scale"),
    "embedding_multiplier": number("embedding_scale"),
    "residual_multiplier": number("residual_scale"),
    "logits_scaling": number("logit_scale"),
}
_DEEPEST = {
    "gemma2": 46,
    "gemma3": 62,
}  # layers of the 27B, whose scores are scaled by the width over the heads


def _query_scalar(said: Said) -> int:
    """The file does not say what divides the scores."""
    if said.layers == _DEEPEST[said.architecture]:
        return said.whole("embedding_length") // said.whole("attention.head_count")
    return head_size(said)


def _sliding_kinds(said: Said) -> list[str]:
    """Every so manieth layer is full, or each layer is told."""
    value = said.of(
        "attention.sliding_window_pattern", (int, list), 6, "a whole number or one for each layer"
    )
    count = said.layers
    slides = value if isinstance(value, list) else [(index + 1) % max(value, 1) > 0 for index in range(count)]
    return ["sliding_attention" if each else "full_attention" for each in slides]


def _window(said: Said) -> int | None:
    """None: what no layer has is said as 0, or not at all."""
    return said.whole("attention.sliding_window", 0) or None


_GEMMA = {
    **DENSE,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": _query_scalar,
    "sliding_window": whole("attention.sliding_window"),
}
_GEMMA_NORMS = {
    "attn_norm": Matrix("input_layernorm", around_zero),
    "post_attention_norm": Matrix("post_attention_layernorm", around_zero),
    "ffn_norm": Matrix("pre_feedforward_layernorm", around_zero),
    "post_ffw_norm": Matrix("post_feedforward_layernorm", around_zero),
}
_GEMMA_OUTSIDE = {**OUTSIDE, "output_norm": Matrix("model.norm", around_zero)}


def _base_depth(said: Said) -> float:
    """MiniCPM's: what each block adds is this over the root of the depth."""
    return said.number("residual_scale") * said.layers**0.5


def _base_width(said: Said) -> float:
    return said.whole("embedding_length") / said.number("logit_scale")


LLAMA: dict[str, Any] = {**DENSE, "mlp_bias": has("ffn_up.bias")}
DENSE_ARCHITECTURES = {
    "llama": Architecture("llama", LLAMA, {**BLOCK, **PAIRED}),
    "smollm3": Architecture("smollm3", LLAMA, {**BLOCK, **PAIRED}),
    "granite": Architecture("granite", {**LLAMA, **MULTIPLIERS}, {**BLOCK, **PAIRED}),
    "minicpm": Architecture(
        "minicpm",
        {
            **LLAMA,
            "scale_emb": number("embedding_scale"),
            "scale_depth": _base_depth,
            "dim_model_base": _base_width,
        },
        {**BLOCK, **PAIRED},
    ),
    "qwen2": Architecture("qwen2", DENSE, BLOCK),
    "qwen3": Architecture("qwen3", DENSE, {**BLOCK, **HEAD_NORMS}),
    "phi3": Architecture(
        "phi3",
        {**DENSE, **PARTIAL_ROPE, "sliding_window": _window},
        {**BLOCK, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    ),
    "olmo2": Architecture(
        "olmo2",
        DENSE,
        {
            **ATTENTION,
            **HEAD_NORMS,
            **MLP,
            "post_attention_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
    ),
    "glm4": Architecture(
        "glm4",
        {**DENSE, **PARTIAL_ROPE},
        {
            **BLOCK,
            "ffn_up": "mlp.gate_up_proj",
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
    ),
    "cohere2": Architecture(
        "cohere2",
        {
            **DENSE,
            "layer_norm_eps": number("attention.layer_norm_epsilon"),
            "logit_scale": number("logit_scale"),
            "sliding_window": whole("attention.sliding_window"),
        },
        BLOCK,
    ),
    "gemma2": Architecture(
        "gemma2",
        {
            **_GEMMA,
            "attn_logit_softcapping": number("attn_logit_softcapping", 50.0),
            "final_logit_softcapping": number("final_logit_softcapping", 30.0),
        },
        {**BLOCK, **_GEMMA_NORMS},
        outside=_GEMMA_OUTSIDE,
    ),
    "gemma3": Architecture(
        "gemma3_text",
        {
            **_GEMMA,
            "layer_types": _sliding_kinds,
            "rope_local_base_freq": number("rope.freq_base_swa", 10000.0),
            "final_logit_softcapping": lambda said: said.number("final_logit_softcapping", 0.0) or None,
        },
        {
            **BLOCK,
            **_GEMMA_NORMS,
            "attn_q_norm": Matrix("self_attn.q_norm", around_zero),
            "attn_k_norm": Matrix("self_attn.k_norm", around_zero),
        },
        outside=_GEMMA_OUTSIDE,
    ),
}
