"""Architectures with the gated delta net in three of four layers."""

from __future__ import annotations

from tokenline.checkpoint.gguf.architecture import (
    ATTENTION,
    BLOCK,
    DENSE,
    EXPERTS,
    OUTSIDE,
    Architecture,
    Joined,
    Matrix,
    of_heads,
)
from tokenline.checkpoint.gguf.rope import PARTIAL_ROPE
from tokenline.checkpoint.gguf.said import whole
from tokenline.checkpoint.gguf.undo import around_zero, by_key_head, logarithm, taps, value_heads

_DELTA_NET = {
    **DENSE,
    **PARTIAL_ROPE,
    "linear_num_key_heads": whole("ssm.group_count"),
    "linear_num_value_heads": whole("ssm.time_step_rank"),
    "linear_key_head_dim": whole("ssm.state_size"),
    "linear_value_head_dim": of_heads,
    "linear_conv_kernel_dim": whole("ssm.conv_kernel"),
    "full_attention_interval": whole("full_attention_interval", 4),
}
_DELTA_LAYERS = {
    **ATTENTION,
    "attn_norm": Matrix("input_layernorm", around_zero),
    "post_attention_norm": Matrix("post_attention_layernorm", around_zero),
    "attn_q_norm": Matrix("self_attn.q_norm", around_zero),
    "attn_k_norm": Matrix("self_attn.k_norm", around_zero),
    "ssm_norm": "linear_attn.norm",
}
_DELTA_OUTSIDE = {**OUTSIDE, "output_norm": Matrix("model.norm", around_zero)}

DELTA_NET_ARCHITECTURES = {
    "qwen3next": Architecture(
        "qwen3_next",
        {
            **_DELTA_NET,
            "num_experts": whole("expert_count"),
            "num_experts_per_tok": whole("expert_used_count"),
            "moe_intermediate_size": whole("expert_feed_forward_length"),
            "shared_expert_intermediate_size": whole("expert_shared_feed_forward_length"),
            "norm_topk_prob": True,
        },
        {
            **_DELTA_LAYERS,
            **EXPERTS,
            "ssm_a": Matrix("linear_attn.A_log", logarithm),
            "ssm_dt.bias": "linear_attn.dt_bias",
            "ssm_conv1d.weight": Matrix("linear_attn.conv1d.weight", taps),
            "ssm_ba": "linear_attn.in_proj_ba",
            "ssm_out": "linear_attn.out_proj",
            "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
            "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
            "ffn_up_shexp": "mlp.shared_expert.up_proj",
            "ffn_down_shexp": "mlp.shared_expert.down_proj",
        },
        joined=(
            Joined("linear_attn.in_proj_qkvz.weight", ("attn_qkv.weight", "attn_gate.weight"), by_key_head),
        ),
        outside=_DELTA_OUTSIDE,
    ),
    "qwen35": Architecture(
        "qwen3_5_text",
        _DELTA_NET,
        {
            **BLOCK,
            **_DELTA_LAYERS,
            "attn_qkv": Matrix("linear_attn.in_proj_qkv", value_heads(after_keys=True)),
            "attn_gate": Matrix("linear_attn.in_proj_z", value_heads()),
            "ssm_a": Matrix("linear_attn.A_log", value_heads(logarithm)),
            "ssm_dt.bias": Matrix("linear_attn.dt_bias", value_heads()),
            "ssm_conv1d.weight": Matrix("linear_attn.conv1d.weight", value_heads(taps, after_keys=True)),
            "ssm_alpha": Matrix("linear_attn.in_proj_a", value_heads()),
            "ssm_beta": Matrix("linear_attn.in_proj_b", value_heads()),
            "ssm_out": Matrix("linear_attn.out_proj", value_heads(axis=1)),
        },
        outside=_DELTA_OUTSIDE,
    ),
}
