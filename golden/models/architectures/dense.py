"""Families that are dense."""

from __future__ import annotations

from architectures.tiny import DENSE, Tiny

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
}
