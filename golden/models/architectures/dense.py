"""Families that are dense."""

from __future__ import annotations

from architectures.tiny import DENSE, Tiny

LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.0, 1.1, 1.2, 1.4, 1.6],
    "long_factor": [1.0, 1.2, 1.7, 2.5, 4.0, 6.5],
    "original_max_position_embeddings": 16,
}

DENSE_FAMILIES: dict[str, Tiny] = {
    "llama": Tiny(
        "llama",
        DENSE
        | {
            "hidden_size": 96,
            "intermediate_size": 256,
            "num_attention_heads": 6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": True,
        },
        {"rope_theta": 10000.0},
        steps=1000,
        rate=3e-3,
        sequence=640,
        batch=5,
    ),
    "qwen2": Tiny(
        "qwen2",
        DENSE | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "tie_word_embeddings": True},
        {"rope_theta": 1e6},
    ),
    "qwen3": Tiny(
        "qwen3",
        DENSE
        | {
            "head_dim": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "tie_word_embeddings": True,
        },
        {"rope_theta": 1e6},
    ),
    "gemma3": Tiny(
        "gemma3_text",
        DENSE
        | {
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 48,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            },
            "tie_word_embeddings": True,
        },
        {
            "rope_theta": 1e6,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "rope_local_base_freq": 1e4,
            "sliding_window_pattern": 3,
        },
    ),
    "gemma2": Tiny(
        "gemma2",
        DENSE
        | {
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 48,
            "attn_logit_softcapping": 5.0,  # where a toy's scores reach it, and its logits theirs
            "final_logit_softcapping": 12.0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            "tie_word_embeddings": True,
        },
        {"rope_theta": 1e4},
    ),
    "mistral": Tiny(
        "mistral",
        DENSE
        | {
            "sliding_window": 48,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            "tie_word_embeddings": False,
        },
        {"rope_theta": 1e4},
    ),
    "phi3": Tiny(
        "phi3",
        DENSE
        | {
            # A trained context that every test passes: the factors beyond it are in use throughout.
            "original_max_position_embeddings": 16,
            "rope_parameters": LONGROPE | {"rope_theta": 1e4, "partial_rotary_factor": 0.75},
            "tie_word_embeddings": False,
        },
        {
            "rope_theta": 1e4,
            "rope_scaling": LONGROPE | {"type": "longrope"},
            "partial_rotary_factor": 0.75,
        },
    ),
    "smollm3": Tiny(
        "smollm3",
        DENSE
        | {
            "num_hidden_layers": 4,
            "no_rope_layer_interval": 4,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e6},
            "tie_word_embeddings": True,
        },
        {"rope_theta": 5e6},
    ),
    "olmo2": Tiny(
        "olmo2",
        DENSE
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "tie_word_embeddings": False},
        {"rope_theta": 5e5},
        steps=450,
    ),
    "glm4": Tiny(
        "glm4",
        DENSE
        | {
            "head_dim": 16,
            "attention_bias": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
            "tie_word_embeddings": False,
        },
        {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
    ),
    "cohere2": Tiny(
        "cohere2",
        DENSE
        | {
            "num_hidden_layers": 4,
            "sliding_window": 48,
            "logit_scale": 0.25,
            "initializer_range": 0.05,
            "layer_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e4},
            "tie_word_embeddings": True,
        },
        {"rope_theta": 5e4, "sliding_window_pattern": 4, "head_dim": 16},
        steps=450,
    ),
    "granite": Tiny(
        "granite",
        DENSE
        | {
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.0625,
            "residual_multiplier": 0.4,
            "logits_scaling": 4.0,
            "initializer_range": 0.1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            "tie_word_embeddings": True,
        },
        {"rope_theta": 1e4},
        steps=450,
    ),
    # transformers has no MiniCPM. A Granite with these multipliers is the same function, and the file keeps both
    # families' keys.
    "minicpm": Tiny(
        "granite",
        DENSE
        | {
            "embedding_multiplier": 12.0,
            "attention_multiplier": 16**-0.5,
            "residual_multiplier": 1.4 / 3**0.5,
            "logits_scaling": 4.0,
            "initializer_range": 0.1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            "tie_word_embeddings": False,
        },
        {
            "model_type": "minicpm",
            "architectures": ["MiniCPMForCausalLM"],
            "scale_emb": 12.0,
            "scale_depth": 1.4,
            "dim_model_base": 16,
            "rope_theta": 1e4,
        },
        steps=400,
    ),
}
