"""Families with a mixture of experts or latent attention."""

from __future__ import annotations

import numpy as np
import torch

from architectures.tiny import DENSE, Tiny

GPT_OSS_YARN = {
    "rope_type": "yarn",
    "factor": 16.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 64,
}
DEEPSEEK_YARN = {
    "rope_type": "yarn",
    "type": "yarn",
    "factor": 16.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.7,
    "original_max_position_embeddings": 64,
}


def mxfp4(name: str, value: torch.Tensor) -> dict[str, torch.Tensor]:
    """gpt-oss's experts [E, K, M] as blocks of 32 four-bit floats along K, with an exponent for each."""
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return {}
    import mlx.core as mx

    words, scales = mx.quantize(mx.array(value.swapaxes(1, 2).numpy()), mode="mxfp4")
    blocks = np.array(words).view(np.uint8).reshape(*scales.shape, 16)
    return {
        f"{name}_blocks": torch.from_numpy(blocks),
        f"{name}_scales": torch.from_numpy(np.array(scales)),
    }


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
    "gpt_oss": Tiny(
        "gpt_oss",
        DENSE
        | {
            "head_dim": 16,
            "intermediate_size": 64,
            "num_hidden_layers": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 48,
            "rope_parameters": GPT_OSS_YARN | {"rope_theta": 150000.0},
            "tie_word_embeddings": False,
        },
        {
            "rope_theta": 150000.0,
            "rope_scaling": GPT_OSS_YARN,
            "swiglu_limit": 7.0,
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn",
                    "model.layers.*.mlp.router",
                    "model.embed_tokens",
                    "lm_head",
                ],
            },
        },
        noise={"self_attn.sinks": 1.0},
        packed=mxfp4,
    ),
    "deepseek_v3": Tiny(
        "deepseek_v3",
        DENSE
        | {
            "num_key_value_heads": 4,
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
            "q_lora_rank": 24,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 12,
            "num_mtp_layers": 0,
            "rope_parameters": DEEPSEEK_YARN | {"rope_theta": 10000.0},
            "tie_word_embeddings": False,
        },
        {
            "rope_theta": 10000.0,
            "rope_scaling": DEEPSEEK_YARN,
            "n_routed_experts": 8,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "moe_layer_freq": 1,
        },
        steps=500,
        noise={"e_score_correction_bias": 0.1},
    ),
    "llama4": Tiny(
        "llama4_text",
        DENSE
        | {
            "head_dim": 16,
            "num_hidden_layers": 4,
            "intermediate_size": 64,
            "intermediate_size_mlp": 160,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 48,
            # Where a text of 300 tokens reaches several steps of it.
            "floor_scale": 64,
            "attn_scale": 0.2,
            "use_qk_norm": True,
            # The published one is 1e-5, and mlx-lm norms heads with this one whatever is said (docs/families.md).
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
            "tie_word_embeddings": False,
        },
        {"rope_theta": 5e5, "rope_scaling": None},
        inside="llama4",
        named=("", "language_model."),
    ),
}
