"""How llama.cpp's converter says a family's configuration as metadata, and which architecture it calls it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gguf_values as values
from gguf import MODEL_ARCH

# config.json's key, and what the file calls it after the architecture's name.
COMMON = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "head_dim": "attention.key_length",
    "rope_theta": "rope.freq_base",
    "vocab_size": "vocab_size",
    "num_experts_per_tok": "expert_used_count",
    "num_local_experts": "expert_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
}


@dataclass(frozen=True)
class Form:
    """How a family is written: llama.cpp's architecture, the values, and metadata beyond the common."""

    architecture: MODEL_ARCH
    change: values.Change = values.as_is
    metadata: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda config: {}
    without: tuple[str, ...] = ()


def _mamba(config: Mapping[str, Any]) -> dict[str, Any]:
    heads = config.get("mamba_n_heads", config.get("mamba_num_heads", config.get("num_heads")))
    head = config.get("mamba_d_head", config.get("mamba_head_dim", config.get("head_dim")))
    return {
        "ssm.conv_kernel": config.get("mamba_d_conv", config.get("conv_kernel")),
        "ssm.inner_size": heads * head,
        "ssm.state_size": config.get("mamba_d_state", config.get("ssm_state_size", config.get("state_size"))),
        "ssm.time_step_rank": heads,
        "ssm.group_count": config.get("mamba_n_groups", config.get("n_groups")),
    }


def _rope_of_head(config: Mapping[str, Any]) -> dict[str, Any]:
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return {"rope.dimension_count": head}


def _granite(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "attention.scale": config["attention_multiplier"],
        "embedding_scale": config["embedding_multiplier"],
        "residual_scale": config["residual_multiplier"],
        "logit_scale": config["logits_scaling"],
        **_rope_of_head(config),
    }


def _granite_hybrid(config: Mapping[str, Any]) -> dict[str, Any]:
    attends = [kind == "attention" for kind in config["layer_types"]]
    return {
        **_granite(config),
        **_mamba(config),
        "attention.head_count_kv": [config["num_key_value_heads"] * one for one in attends],
        "rope.scaling.finetuned": config["position_embedding_type"] == "rope",
        "expert_shared_feed_forward_length": config["shared_intermediate_size"],
    }


def _minicpm(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "embedding_scale": float(config["scale_emb"]),
        "residual_scale": config["scale_depth"] / config["num_hidden_layers"] ** 0.5,
        "logit_scale": config["hidden_size"] / config["dim_model_base"],
        **_rope_of_head(config),
    }


def _gemma(config: Mapping[str, Any]) -> dict[str, Any]:
    made = {
        "attention.sliding_window": config["sliding_window"],
        "attention.value_length": config["head_dim"],
    }
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        made |= {key: config[key]} if config[key] is not None else {}
    if config["model_type"] == "gemma3_text":
        made |= {
            "attention.sliding_window_pattern": config["sliding_window_pattern"],
            "rope.scaling.type": "linear",
            "rope.scaling.factor": config["rope_scaling"]["factor"],
            "rope.freq_base_swa": config["rope_local_base_freq"],
        }
    return made


def _phi3(config: Mapping[str, Any]) -> dict[str, Any]:
    trained, context = config["original_max_position_embeddings"], config["max_position_embeddings"]
    return {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": trained,
        "rope.scaling.attn_factor": math.sqrt(1 + math.log(context / trained) / math.log(trained)),
        "rope.dimension_count": int(0.75 * config["hidden_size"]) // config["num_attention_heads"],
        "attention.sliding_window": config["sliding_window"] or 0,
    }


def _yarn(config: Mapping[str, Any]) -> dict[str, Any]:
    scaling = config["rope_scaling"]
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": scaling["factor"],
        "rope.scaling.original_context_length": scaling["original_max_position_embeddings"],
        "rope.scaling.yarn_beta_fast": scaling["beta_fast"],
        "rope.scaling.yarn_beta_slow": scaling["beta_slow"],
    }


def _gpt_oss(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_yarn(config),
        "attention.sliding_window": config["sliding_window"],
        "attention.value_length": config["head_dim"],
        "expert_feed_forward_length": config["intermediate_size"],
    }


def _deepseek(config: Mapping[str, Any]) -> dict[str, Any]:
    rank, rotated = config["kv_lora_rank"], config["qk_rope_head_dim"]
    return {
        **_yarn(config),
        "rope.scaling.yarn_log_multiplier": 0.1 * config["rope_scaling"]["mscale_all_dim"],
        "rope.dimension_count": rotated,
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": config["q_lora_rank"],
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rotated,
        "attention.value_length": rank,
        "attention.key_length_mla": config["qk_nope_head_dim"] + rotated,
        "attention.value_length_mla": config["v_head_dim"],
        "leading_dense_block_count": config["first_k_dense_replace"],
        "expert_count": config["n_routed_experts"],
        "expert_shared_count": config["n_shared_experts"],
        "expert_weights_scale": config["routed_scaling_factor"],
        "expert_weights_norm": config["norm_topk_prob"],
        "expert_gating_func": 2,
    }


def _lfm2(config: Mapping[str, Any]) -> dict[str, Any]:
    attends = [kind == "full_attention" for kind in config["layer_types"]]
    inner, multiple = int(2 * config["block_ff_dim"] / 3), config["block_multiple_of"]
    return {
        "attention.head_count_kv": [config["num_key_value_heads"] * one for one in attends],
        "attention.layer_norm_rms_epsilon": config["norm_eps"],
        "shortconv.l_cache": config["conv_L_cache"],
        "feed_forward_length": -(-inner // multiple) * multiple,
    }


def _mamba2(config: Mapping[str, Any]) -> dict[str, Any]:
    alone = {"attention.head_count": 0, "feed_forward_length": 0, "context_length": 1 << 20}
    return {**_mamba(config), **alone, "attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"]}


def _nemotron(config: Mapping[str, Any]) -> dict[str, Any]:
    kinds = config["layers_block_type"]
    moe = "moe" in kinds
    inner = config["moe_intermediate_size" if moe else "intermediate_size"]
    made = {
        **_mamba(config),
        "attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
        "attention.head_count_kv": [
            config["num_key_value_heads"] * (kind == "full_attention") for kind in kinds
        ],
        "attention.value_length": config["head_dim"],
        "feed_forward_length": [inner * (kind in ("mlp", "moe")) for kind in kinds],
        "rope.scaling.finetuned": False,
        "rope.dimension_count": config["head_dim"],
    }
    if moe:
        made |= {
            "expert_count": config["n_routed_experts"],
            "expert_shared_count": config["n_shared_experts"],
            "expert_shared_feed_forward_length": config["moe_shared_expert_intermediate_size"],
            "expert_weights_norm": config["norm_topk_prob"],
            "expert_weights_scale": config["routed_scaling_factor"],
        }
    return made


def _delta_net(config: Mapping[str, Any]) -> dict[str, Any]:
    heads = config["linear_num_value_heads"]
    made = {
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": heads,
        "ssm.inner_size": config["linear_value_head_dim"] * heads,
        "full_attention_interval": config["full_attention_interval"],
        "rope.dimension_count": config["head_dim"] // 4,
        "rope.freq_base": config["rope_parameters"]["rope_theta"],
        "attention.value_length": config["head_dim"],
    }
    if config["model_type"] == "qwen3_5_text":
        made["rope.dimension_sections"] = [2, 1, 1, 0]
    else:
        made["expert_shared_feed_forward_length"] = config["shared_expert_intermediate_size"]
        made["expert_count"] = config["num_experts"]
    return made


def _llama4(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_rope_of_head(config),
        "feed_forward_length": config["intermediate_size_mlp"],
        "expert_feed_forward_length": config["intermediate_size"],
        "interleave_moe_layer_step": config["interleave_moe_layer_step"],
        "attention.value_length": config["head_dim"],
    }


def _windows(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "logit_scale": config["logit_scale"],
        "attention.sliding_window": config["sliding_window"],
        "rope.scaling.type": "none",
        **_rope_of_head(config),
    }


FORMS: dict[str, Form] = {
    "cohere2": Form(MODEL_ARCH.COHERE2, metadata=_windows, without=("rms_norm_eps",)),
    "deepseek_v3": Form(MODEL_ARCH.DEEPSEEK2, values.latent, _deepseek, without=("head_dim",)),
    "falcon_h1": Form(MODEL_ARCH.FALCON_H1, values.falcon_h1, _mamba),
    "gemma2": Form(MODEL_ARCH.GEMMA2, values.norms_around_one, _gemma),
    "gemma3": Form(MODEL_ARCH.GEMMA3, values.norms_around_one, _gemma),
    "glm4": Form(MODEL_ARCH.GLM4, metadata=lambda config: {"rope.dimension_count": config["head_dim"] // 2}),
    "gpt_oss": Form(MODEL_ARCH.GPT_OSS, values.gpt_oss, _gpt_oss),
    "granite": Form(MODEL_ARCH.GRANITE, values.pairs_as_neighbours, _granite),
    "granitemoehybrid": Form(MODEL_ARCH.GRANITE_HYBRID, values.granite_hybrid, _granite_hybrid),
    "granitemoehybrid_moe": Form(MODEL_ARCH.GRANITE_HYBRID, values.granite_hybrid, _granite_hybrid),
    "lfm2": Form(MODEL_ARCH.LFM2, values.short_convolution, _lfm2),
    "llama": Form(MODEL_ARCH.LLAMA, values.pairs_as_neighbours, _rope_of_head),
    "llama4": Form(MODEL_ARCH.LLAMA4, values.llama4, _llama4),
    "mamba2": Form(MODEL_ARCH.MAMBA2, values.state_space, _mamba2, without=("head_dim", "intermediate_size")),
    "minicpm": Form(MODEL_ARCH.MINICPM, values.pairs_as_neighbours, _minicpm),
    "mistral": Form(MODEL_ARCH.LLAMA, values.pairs_as_neighbours, _rope_of_head),
    "mixtral": Form(MODEL_ARCH.LLAMA, values.pairs_as_neighbours, _rope_of_head),
    "nemotron_h": Form(
        MODEL_ARCH.NEMOTRON_H,
        values.state_space,
        _nemotron,
        without=("num_experts_per_tok", "n_group", "topk_group", "moe_intermediate_size"),
    ),
    "nemotron_h_moe": Form(MODEL_ARCH.NEMOTRON_H_MOE, values.state_space, _nemotron),
    "olmo2": Form(MODEL_ARCH.OLMO2),
    "phi3": Form(MODEL_ARCH.PHI3, metadata=_phi3),
    "qwen2": Form(MODEL_ARCH.QWEN2),
    "qwen3": Form(MODEL_ARCH.QWEN3),
    "qwen3_5": Form(MODEL_ARCH.QWEN35, values.delta_net_in_turn, _delta_net),
    "qwen3_moe": Form(MODEL_ARCH.QWEN3MOE),
    "qwen3_next": Form(MODEL_ARCH.QWEN3NEXT, values.delta_net, _delta_net),
    "smollm3": Form(MODEL_ARCH.SMOLLM3, values.pairs_as_neighbours, _rope_of_head),
}
