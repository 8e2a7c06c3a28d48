"""Architectures with a recurrent state, alone or beside attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.gguf.architecture import (
    ATTENTION,
    BLOCK,
    COUNTS,
    DENSE,
    EXPERTS,
    FRAME,
    HEADS,
    OUTSIDE,
    PAIRED,
    Architecture,
    Joined,
    Matrix,
)
from tokenline.checkpoint.gguf.dense import MULTIPLIERS
from tokenline.checkpoint.gguf.experts import GROUPED
from tokenline.checkpoint.gguf.rope import PARTIAL_ROPE
from tokenline.checkpoint.gguf.said import MEND, Said, flag, has, most, number, whole
from tokenline.checkpoint.gguf.undo import (
    around_zero,
    by_key_head,
    flat,
    gates_above_ups,
    logarithm,
    taps,
    value_heads,
)
from tokenline.errors import CheckpointError


def _of_heads(said: Said) -> int:
    """Entries of a head of a state space."""
    heads, inner = said.whole("ssm.time_step_rank"), said.whole("ssm.inner_size")
    if heads == 0 or inner % heads:
        raise CheckpointError(f"{said.file} has a state space of {inner} in {heads} heads", MEND)
    return inner // heads


def _attending(said: Said) -> list[bool]:
    """Layers that have keys are those that attend."""
    return [count > 0 for count in said.by_layer("attention.head_count_kv")]


def _granite_kinds(said: Said) -> list[str]:
    return ["attention" if attends else "mamba" for attends in _attending(said)]


def _nemotron_kinds(said: Said) -> list[str]:
    inner = "moe" if said.whole("expert_count", 0) else "mlp"
    sizes = zip(_attending(said), said.by_layer("feed_forward_length"), strict=True)
    return ["full_attention" if attends else inner if size else "linear_attention" for attends, size in sizes]


def _granite_positions(said: Said) -> str:
    return "rope" if said.flag("rope.scaling.finetuned", True) else "nope"


# Mamba 2 under the names of the hybrids, and under its own.
_HYBRID = {
    "mamba_n_heads": whole("ssm.time_step_rank"),
    "mamba_d_head": _of_heads,
    "mamba_d_ssm": whole("ssm.inner_size"),
    "mamba_n_groups": whole("ssm.group_count"),
    "mamba_d_state": whole("ssm.state_size"),
    "mamba_d_conv": whole("ssm.conv_kernel"),
    "mamba_conv_bias": has("ssm_conv1d.bias"),
    "mamba_proj_bias": has("ssm_in.bias"),
    "mamba_rms_norm": has("ssm_norm.weight"),
    "mamba_norm_before_gate": False,
}
_OWN = {
    "n_groups": whole("ssm.group_count"),
    "conv_kernel": whole("ssm.conv_kernel"),
    "use_bias": has("ssm_in.bias"),
    "use_conv_bias": has("ssm_conv1d.bias"),
    "layer_norm_epsilon": number("attention.layer_norm_rms_epsilon"),
}


def _state_space(mixer: str) -> Mapping[str, str | Matrix]:
    return {
        "ssm_in": f"{mixer}.in_proj",
        "ssm_conv1d.weight": Matrix(f"{mixer}.conv1d.weight", taps),
        "ssm_conv1d.bias": f"{mixer}.conv1d.bias",
        "ssm_dt.bias": f"{mixer}.dt_bias",
        "ssm_a": Matrix(f"{mixer}.A_log", logarithm),
        "ssm_d": Matrix(f"{mixer}.D", flat),
        "ssm_norm": Matrix(f"{mixer}.norm", flat),
        "ssm_out": f"{mixer}.out_proj",
    }


_BACKBONE = {
    "token_embd": "backbone.embeddings",
    "output_norm": "backbone.norm_f",
    "output": "lm_head",
}
_GRANITE = {**FRAME, **HEADS, **MULTIPLIERS, **_HYBRID, "rope_theta": number("rope.freq_base", 10000.0)}
_NEMOTRON = {
    **FRAME,
    **HEADS,
    **_OWN,
    "mamba_num_heads": whole("ssm.time_step_rank"),
    "mamba_head_dim": _of_heads,
    "mamba_proj_bias": has("ssm_in.bias"),
    "ssm_state_size": whole("ssm.state_size"),
    "layers_block_type": _nemotron_kinds,
    "intermediate_size": most("feed_forward_length"),
    "mlp_bias": has("ffn_up.bias"),
}
_NEMOTRON_LAYERS = {
    "attn_norm": "norm",
    **_state_space("mixer"),
    "attn_q": "mixer.q_proj",
    "attn_k": "mixer.k_proj",
    "attn_v": "mixer.v_proj",
    "attn_output": "mixer.o_proj",
    "ffn_up": "mixer.up_proj",
    "ffn_down": "mixer.down_proj",
}
_DELTA_NET = {
    **DENSE,
    **PARTIAL_ROPE,
    "linear_num_key_heads": whole("ssm.group_count"),
    "linear_num_value_heads": whole("ssm.time_step_rank"),
    "linear_key_head_dim": whole("ssm.state_size"),
    "linear_value_head_dim": _of_heads,
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

RECURRENT_ARCHITECTURES = {
    "mamba2": Architecture(
        "mamba2",
        {
            **FRAME,
            **_OWN,
            "num_heads": whole("ssm.time_step_rank"),
            "head_dim": _of_heads,
            "state_size": whole("ssm.state_size"),
        },
        {"attn_norm": "norm", **_state_space("mixer")},
        outside=_BACKBONE,
        layer="backbone.layers.",
    ),
    "granitehybrid": Architecture(
        "granitemoehybrid",
        {
            **_GRANITE,
            **COUNTS,
            "num_local_experts": whole("expert_count", 0),
            "num_experts_per_tok": whole("expert_used_count", 0),
            "layer_types": _granite_kinds,
            "position_embedding_type": _granite_positions,
            "intermediate_size": whole("feed_forward_length"),
            "shared_intermediate_size": lambda said: said.whole(
                "expert_shared_feed_forward_length", said.whole("feed_forward_length")
            ),
        },
        {
            **ATTENTION,
            **PAIRED,
            **_state_space("mamba"),
            "ffn_norm": "post_attention_layernorm",
            "ffn_down": "shared_mlp.output_linear",
            "ffn_down_shexp": "shared_mlp.output_linear",
            "ffn_gate_inp": "block_sparse_moe.router.layer",
            "ffn_down_exps": "block_sparse_moe.output_linear",
        },
        joined=(
            Joined(
                "block_sparse_moe.input_linear.weight",
                ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
                gates_above_ups,
            ),
            Joined(
                "shared_mlp.input_linear.weight",
                ("ffn_gate_shexp.weight", "ffn_up_shexp.weight"),
                gates_above_ups,
            ),
            Joined("shared_mlp.input_linear.weight", ("ffn_gate.weight", "ffn_up.weight"), gates_above_ups),
        ),
    ),
    # Its multipliers are in the matrices.
    "falcon-h1": Architecture(
        "falcon_h1",
        {**DENSE, **_HYBRID},
        {
            **ATTENTION,
            **_state_space("mamba"),
            "ffn_norm": "pre_ff_layernorm.weight",
            "ffn_gate": "feed_forward.gate_proj",
            "ffn_up": "feed_forward.up_proj",
            "ffn_down": "feed_forward.down_proj",
        },
        outside={**OUTSIDE, "output_norm": "model.final_layernorm"},
    ),
    "nemotron_h": Architecture(
        "nemotron_h", _NEMOTRON, _NEMOTRON_LAYERS, outside=_BACKBONE, layer="backbone.layers."
    ),
    "nemotron_h_moe": Architecture(
        "nemotron_h",
        {
            **_NEMOTRON,
            **GROUPED,
            "moe_shared_expert_intermediate_size": whole("expert_shared_feed_forward_length"),
        },
        {
            **_NEMOTRON_LAYERS,
            "ffn_gate_inp": "mixer.gate",
            "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
            "ffn_up_exps.weight": Matrix("mixer.experts.{expert}.up_proj.weight"),
            "ffn_down_exps.weight": Matrix("mixer.experts.{expert}.down_proj.weight"),
            "ffn_up_shexp": "mixer.shared_experts.up_proj",
            "ffn_down_shexp": "mixer.shared_experts.down_proj",
        },
        outside=_BACKBONE,
        layer="backbone.layers.",
    ),
    "lfm2": Architecture(
        "lfm2",
        {
            **DENSE,
            "norm_eps": number("attention.layer_norm_rms_epsilon"),
            "conv_L_cache": whole("shortconv.l_cache"),
            "conv_bias": has("shortconv.conv.bias"),
            "block_auto_adjust_ff_dim": False,
            "full_attn_idxs": lambda said: [index for index, one in enumerate(_attending(said)) if one],
        },
        {
            **ATTENTION,
            "attn_norm": "operator_norm",
            "ffn_norm": "ffn_norm",
            "attn_q_norm": "self_attn.q_layernorm",
            "attn_k_norm": "self_attn.k_layernorm",
            "attn_output": "self_attn.out_proj",
            "shortconv.conv.weight": Matrix("conv.conv.weight", taps),
            "shortconv.conv.bias": "conv.conv.bias",
            "shortconv.in_proj": "conv.in_proj",
            "shortconv.out_proj": "conv.out_proj",
            "ffn_gate": "feed_forward.w1",
            "ffn_down": "feed_forward.w2",
            "ffn_up": "feed_forward.w3",
        },
        outside={
            "token_embd": "model.embed_tokens",
            "token_embd_norm": "model.embedding_norm",
            "output": "lm_head",
        },
    ),
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
