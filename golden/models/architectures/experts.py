"""Families with a mixture of experts or latent attention."""

from __future__ import annotations

from architectures.tiny import DENSE, Tiny

EXPERT_FAMILIES: dict[str, Tiny] = {
    "mixtral": Tiny(
        "mixtral",
        DENSE
        | {
            "intermediate_size": 64,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "tie_word_embeddings": False,
        },
        {"rope_theta": 1e6},
    ),
    "qwen3_moe": Tiny(
        "qwen3_moe",
        DENSE
        | {
            "head_dim": 16,
            "moe_intermediate_size": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [1],
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "tie_word_embeddings": False,
        },
        {"rope_theta": 1e6, "num_experts": 8},
    ),
}
