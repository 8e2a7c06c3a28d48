"""Architectures with a mixture of experts or latent attention."""

from __future__ import annotations

from typing import Any

from tokenline.checkpoint.gguf.architecture import (
    ATTENTION,
    BLOCK,
    COUNTS,
    DENSE,
    EXPERTS,
    HEAD_NORMS,
    PAIRED,
    Architecture,
    Joined,
    Matrix,
)
from tokenline.checkpoint.gguf.dense import LLAMA
from tokenline.checkpoint.gguf.rope import scaling
from tokenline.checkpoint.gguf.said import MEND, Said, flag, has, number, whole
from tokenline.checkpoint.gguf.undo import gates_and_ups_in_turn, turned
from tokenline.errors import CheckpointError

_GATING = {1: "softmax", 2: "sigmoid"}
CHUNK = 8192  # Llama 4's, which no file says; also how far apart the steps of its temperature are


def scoring(said: Said) -> str:
    """How experts are scored; without a word by softmax."""
    told = said.whole("expert_gating_func", 1)
    if told not in _GATING:
        raise CheckpointError(
            f"{said.file} says that {said.architecture}.expert_gating_func is {told}",
            f"supported: {', '.join(f'{code} ({name})' for code, name in _GATING.items())}",
        )
    return _GATING[told]


GROUPED = {
    "n_group": whole("expert_group_count", 1),
    "topk_group": whole("expert_group_used_count", 1),
    "norm_topk_prob": flag("expert_weights_norm", False),
    "routed_scaling_factor": number("expert_weights_scale", 1.0),
    "n_routed_experts": whole("expert_count"),
    "n_shared_experts": whole("expert_shared_count"),
    "num_experts_per_tok": whole("expert_used_count"),
    "moe_intermediate_size": whole("expert_feed_forward_length"),
}


def _yarn_both(said: Said) -> dict[str, Any]:
    """DeepSeek's two weights of the stretch: the file has one, which stands for both, a tenth of it."""
    made = dict(scaling(said))
    weight = 10 * said.number("rope.scaling.yarn_log_multiplier", 0.0)
    return made | ({"mscale": weight, "mscale_all_dim": weight} if weight else {})


def _plain_part(said: Said) -> int:
    part = said.whole("attention.key_length_mla") - said.whole("rope.dimension_count")
    if part < 1:
        raise CheckpointError(f"{said.file} has keys of which nothing is left beside the rotated part", MEND)
    return part


def _unstretched(said: Said) -> dict[str, Any]:
    """gpt-oss: the ramp of yarn begins and ends between dimensions, which no file says."""
    return {**scaling(said), "truncate": False}


EXPERT_ARCHITECTURES = {
    # A llama with experts is Mixtral.
    "mixtral": Architecture("mixtral", {**LLAMA, **COUNTS}, {**BLOCK, **PAIRED, **EXPERTS}),
    "qwen3moe": Architecture(
        "qwen3_moe",
        {
            **DENSE,
            "num_experts": whole("expert_count"),
            "num_experts_per_tok": whole("expert_used_count"),
            "moe_intermediate_size": whole("expert_feed_forward_length"),
            "norm_topk_prob": True,
        },
        {**BLOCK, **HEAD_NORMS, **EXPERTS},
    ),
    "gpt-oss": Architecture(
        "gpt_oss",
        {
            **DENSE,
            **COUNTS,
            "rope_scaling": _unstretched,
            "intermediate_size": whole("expert_feed_forward_length"),
            "sliding_window": whole("attention.sliding_window"),
            "attention_bias": has("attn_q.bias"),
        },
        {
            **ATTENTION,
            "attn_sinks.weight": "self_attn.sinks",
            "post_attention_norm": "post_attention_layernorm",
            "ffn_gate_inp": "mlp.router",
            "ffn_down_exps.weight": Matrix("mlp.experts.down_proj", turned),
            "ffn_down_exps.bias": "mlp.experts.down_proj_bias",
        },
        joined=(
            Joined(
                "mlp.experts.gate_up_proj",
                ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
                gates_and_ups_in_turn,
            ),
            Joined(
                "mlp.experts.gate_up_proj_bias",
                ("ffn_gate_exps.bias", "ffn_up_exps.bias"),
                gates_and_ups_in_turn,
            ),
        ),
    ),
    "deepseek2": Architecture(
        "deepseek_v3",
        {
            **DENSE,
            **GROUPED,
            "rope_scaling": _yarn_both,
            "num_key_value_heads": whole("attention.head_count"),
            "q_lora_rank": lambda said: said.whole("attention.q_lora_rank", 0) or None,
            "kv_lora_rank": whole("attention.kv_lora_rank"),
            "qk_rope_head_dim": whole("rope.dimension_count"),
            "qk_nope_head_dim": _plain_part,
            "v_head_dim": whole("attention.value_length_mla"),
            "head_dim": whole("attention.key_length_mla"),
            "first_k_dense_replace": whole("leading_dense_block_count", 0),
            "scoring_func": scoring,
            "topk_method": "noaux_tc",
        },
        {
            **BLOCK,
            **EXPERTS,
            "attn_q_a": "self_attn.q_a_proj",
            "attn_q_a_norm": "self_attn.q_a_layernorm",
            "attn_q_b": "self_attn.q_b_proj",
            "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
            "attn_kv_a_norm": "self_attn.kv_a_layernorm",
            # As mlx-lm stores them.
            "attn_k_b": "self_attn.embed_q",
            "attn_v_b": "self_attn.unembed_out",
            "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
            "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
            "ffn_up_shexp": "mlp.shared_experts.up_proj",
            "ffn_down_shexp": "mlp.shared_experts.down_proj",
        },
    ),
    "llama4": Architecture(
        "llama4_text",
        {
            **DENSE,
            **COUNTS,
            "intermediate_size": whole("expert_feed_forward_length"),
            "intermediate_size_mlp": whole("feed_forward_length"),
            "interleave_moe_layer_step": whole("interleave_moe_layer_step", 1),
            "attention_chunk_size": CHUNK,
            "floor_scale": CHUNK,
            "attn_scale": 0.1,
            "use_qk_norm": lambda said: said.whole("expert_count") != 128,  # Maverick's heads are not normed
        },
        {
            **ATTENTION,
            "ffn_norm": "post_attention_layernorm",
            "ffn_gate": "feed_forward.gate_proj",
            "ffn_up": "feed_forward.up_proj",
            "ffn_down": "feed_forward.down_proj",
            "ffn_gate_inp": "feed_forward.router",
            "ffn_gate_exps": "feed_forward.switch_mlp.gate_proj",
            "ffn_up_exps": "feed_forward.switch_mlp.up_proj",
            "ffn_down_exps": "feed_forward.switch_mlp.down_proj",
            "ffn_gate_shexp": "feed_forward.shared_expert.gate_proj",
            "ffn_up_shexp": "feed_forward.shared_expert.up_proj",
            "ffn_down_shexp": "feed_forward.shared_expert.down_proj",
        },
    ),
}
