"""Architectures with a recurrent state, alone or beside attention."""

from __future__ import annotations

from collections.abc import Mapping

from tokenline.checkpoint.gguf.architecture import (
    ATTENTION,
    COUNTS,
    DENSE,
    FRAME,
    HEADS,
    OUTSIDE,
    PAIRED,
    Architecture,
    Joined,
    Matrix,
    of_heads,
)
from tokenline.checkpoint.gguf.dense import MULTIPLIERS
from tokenline.checkpoint.gguf.experts import GROUPED
from tokenline.checkpoint.gguf.said import Said, has, number, whole
from tokenline.checkpoint.gguf.undo import (
    flat,
    gates_above_ups,
    logarithm,
    taps,
)


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
    "mamba_d_head": of_heads,
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
    "mamba_head_dim": of_heads,
    "mamba_proj_bias": has("ssm_in.bias"),
    "ssm_state_size": whole("ssm.state_size"),
    "layers_block_type": _nemotron_kinds,
    "intermediate_size": lambda said: max(said.by_layer("feed_forward_length")),
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
RECURRENT_ARCHITECTURES = {
    "mamba2": Architecture(
        "mamba2",
        {
            **FRAME,
            **_OWN,
            "num_heads": whole("ssm.time_step_rank"),
            "head_dim": of_heads,
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
}
