"""Families with a recurrent state, alone or beside attention."""

from __future__ import annotations

from typing import Any

from architectures.tiny import DENSE, Tiny

# Mamba 2 under the names of the hybrids: 8 heads of 16 over a state of 16.
HYBRID_MAMBA: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 64,
}

# The gated delta net: 2 key heads serve 4 value heads; attention rotates a quarter of a head.
DELTA_NET: dict[str, Any] = {
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}

RECURRENT_FAMILIES: dict[str, Tiny] = {
    "lfm2": Tiny(
        "lfm2",
        {key: value for key, value in DENSE.items() if key != "rms_norm_eps"}
        | {
            "num_hidden_layers": 4,
            "layer_types": ["conv", "conv", "full_attention", "conv"],
            "intermediate_size": 240,  # two thirds of it, rounded up to the multiple
            "block_multiple_of": 32,
            "norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "tie_word_embeddings": True,
        },
        {"rope_theta": 1e6, "block_dim": 64, "block_ff_dim": 240, "full_attn_idxs": [2]},
    ),
    "mamba2": Tiny(
        "mamba2",
        {
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_heads": 8,
            "head_dim": 16,
            "n_groups": 2,
            "state_size": 16,
            "expand": 2,
            "conv_kernel": 4,
            "tie_word_embeddings": False,
        },
        {"intermediate_size": 128},
        steps=180,
    ),
    "granitemoehybrid": Tiny(
        "granitemoehybrid",
        DENSE
        | HYBRID_MAMBA
        | {
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
            "num_local_experts": 0,
            "shared_intermediate_size": 160,
            "position_embedding_type": "nope",
            "embedding_multiplier": 12.0,
            "logits_scaling": 3.0,
            "residual_multiplier": 0.246,
            "attention_multiplier": 0.0625,
            "initializer_range": 0.1,
            "tie_word_embeddings": True,
        },
        {"layer_types": ["mamba", "mamba", "attention", "mamba"]},
        steps=180,
        rate=8e-3,
    ),
    "granitemoehybrid_moe": Tiny(
        "granitemoehybrid",
        DENSE
        | HYBRID_MAMBA
        | {
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "intermediate_size": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 64,
            "position_embedding_type": "rope",
            "embedding_multiplier": 12.0,
            "logits_scaling": 3.0,
            "residual_multiplier": 0.246,
            "attention_multiplier": 0.0625,
            "initializer_range": 0.1,
            "tie_word_embeddings": True,
        },
        {"layer_types": ["mamba", "attention", "mamba"], "rope_theta": 10000.0},
        steps=180,
        rate=8e-3,
    ),
    "nemotron_h": Tiny(
        "nemotron_h",
        {key: value for key, value in DENSE.items() if key not in ("rms_norm_eps", "num_hidden_layers")}
        | {
            "layers_block_type": [
                "linear_attention",
                "mlp",
                "linear_attention",
                "moe",
                "full_attention",
                "mlp",
            ],
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "moe_shared_expert_intermediate_size": 48,
            "routed_scaling_factor": 2.5,
            "head_dim": 16,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "n_groups": 2,
            "ssm_state_size": 16,
            "chunk_size": 64,
            "time_step_max": 0.01,  # steps so short that a limit at 0.001 would show
            "tie_word_embeddings": False,
        },
        {"hybrid_override_pattern": "M-ME*-", "num_hidden_layers": 6},
        noise={"e_score_correction_bias": 0.05},
        steps=180,
    ),
    "falcon_h1": Tiny(
        "falcon_h1",
        DENSE
        | HYBRID_MAMBA
        | {
            "mamba_n_heads": 6,
            "mamba_d_ssm": 96,
            "head_dim": 16,
            "mamba_rms_norm": False,
            "mamba_norm_before_gate": False,
            "embedding_multiplier": 5.656854249492381,
            "lm_head_multiplier": 0.5,
            "key_multiplier": 0.390625,
            "attention_in_multiplier": 1.0,
            "attention_out_multiplier": 0.9375,
            "mlp_multipliers": [0.8838834764831844, 0.5859375],
            "ssm_in_multiplier": 1.25,
            "ssm_out_multiplier": 0.23570226039551587,
            "ssm_multipliers": [0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e11},
            "tie_word_embeddings": False,
        },
        {"rope_theta": 1e11},
        steps=300,
        rate=8e-3,
    ),
    "qwen3_5": Tiny(
        "qwen3_5_text",
        DENSE
        | DELTA_NET
        | {
            "num_hidden_layers": 4,
            "full_attention_interval": 4,
            "tie_word_embeddings": True,
        },
        {"full_attention_interval": 4},
        inside="qwen3_5",
        steps=180,
    ),
    "qwen3_next": Tiny(
        "qwen3_next",
        DENSE
        | DELTA_NET
        | {
            "num_hidden_layers": 4,
            "full_attention_interval": 4,
            "mlp_only_layers": [0],
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "shared_expert_intermediate_size": 48,
            "tie_word_embeddings": False,
        },
        {"full_attention_interval": 4, "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        steps=180,
    ),
}
