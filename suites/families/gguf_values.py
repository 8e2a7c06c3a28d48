"""What llama.cpp's converter makes of a directory's matrices, family by family: other names, orders, values.

Written down from the format, and proved right by llama.cpp itself, which loads what comes of it and says what
transformers says of the directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Named = Iterator[tuple[str, np.ndarray]]
Change = Callable[[Mapping[str, Any], str, np.ndarray], Named]


def as_is(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    yield name, value


def pairs_as_neighbours(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    """The rows of q and k, whose rope pairs are the halves of a head, so that pairs are neighbours."""
    for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
        if f".{part}." in name:
            count = config[heads]
            value = value.reshape(count, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
    yield name, value


def norms_around_one(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    yield name, value + 1 if name.endswith("norm.weight") else value


def state_space(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    """Mamba 2: A itself and not its logarithm, a column of it and of D, norms in groups."""
    groups = config.get("n_groups", config.get("mamba_n_groups"))
    if name.endswith(".A_log"):
        value = -np.exp(value)[:, None]
    elif name.endswith(".D"):
        value = value[:, None]
    elif name.endswith(".conv1d.weight"):
        value = value[:, 0]
    elif name.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
        value = value.reshape(groups, -1)
    yield name.replace(".dt_bias", ".dt_proj.bias"), value


def granite_hybrid(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    experts = config["num_local_experts"] > 0
    for kind, mlp in (("shared_mlp", "_shexp" if experts else ""), ("block_sparse_moe", "_exps")):
        if f".{kind}.input_linear." in name:
            layer = name.split(".")[2]
            for part, half in zip(("gate", "up"), np.split(value, 2, axis=-2), strict=True):
                yield f"blk.{layer}.ffn_{part}{mlp}.weight", half
            return
    if ".shared_mlp.output_linear." in name and not experts:
        yield f"blk.{name.split('.')[2]}.ffn_down.weight", value
        return
    for told, kept in state_space(config, name, value):
        yield from pairs_as_neighbours(config, told, kept)


def falcon_h1(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    """Its multipliers are multiplied into the matrices."""

    def of(key: str) -> float:
        return float(config[f"{key}_multiplier"])

    inner, state = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
    gate, down = config["mlp_multipliers"]
    factors = {
        "gate_proj": gate,
        "down_proj": down,
        "q_proj": of("attention_in"),
        "k_proj": of("attention_in") * of("key"),
        "v_proj": of("attention_in"),
        "o_proj": of("attention_out"),
        "out_proj": of("ssm_out"),
        "in_proj": of("ssm_in"),
        "lm_head": of("lm_head"),
        "embed_tokens": of("embedding"),
    }  # fmt: skip
    factor = factors.get(name.removesuffix(".weight").rpartition(".")[2], 1.0)
    value = value * np.float32(factor)
    if ".in_proj." in name:
        counts = [inner, inner, state, state, config["mamba_n_heads"]]
        value = value * np.repeat(np.asarray(config["ssm_multipliers"], np.float32), counts)[:, None]
    yield from state_space(config, name, value)


def short_convolution(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    yield name, value[:, 0] if name.endswith(".conv.conv.weight") else value


def latent(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    """Keys and values out of the latent are two stacks of matrices, the keys' turned."""
    if not name.endswith(".kv_b_proj.weight"):
        yield name.replace("e_score_correction_bias", "e_score_correction.bias"), value
        return
    by_head = value.reshape(config["num_attention_heads"], -1, value.shape[1])
    keys, values = np.split(by_head, [config["qk_nope_head_dim"]], axis=1)
    yield name.replace("kv_b_proj", "k_b_proj"), keys.swapaxes(1, 2)
    yield name.replace("kv_b_proj", "v_b_proj"), values


def gpt_oss(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    if name.endswith(".gate_up_proj_bias"):
        for index, part in enumerate(("gate_proj", "up_proj")):
            yield name.replace("gate_up_proj_bias", f"{part}.bias"), value[:, index::2]
    else:
        yield name.replace("down_proj_bias", "down_proj.bias").replace(".sinks", ".sinks.weight"), value


def delta_net(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    """Qwen 3 Next: q, k and v of all heads apart from z, which the directory stores key head by key head."""
    if name.endswith("in_proj_qkvz.weight"):
        keys, each = config["linear_num_key_heads"], config["linear_key_head_dim"]
        served = config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
        by_head = value.reshape(keys, -1, value.shape[1])
        parts = np.split(by_head, np.cumsum([each, each, served]), axis=1)
        q, k, v, z = (part.reshape(-1, value.shape[1]) for part in parts)
        layer = name.split(".")[2]
        yield f"blk.{layer}.attn_qkv.weight", np.concatenate([q, k, v])
        yield f"blk.{layer}.attn_gate.weight", z
        return
    if name.endswith(".A_log"):
        value = -np.exp(value)
    elif name.endswith("conv1d.weight"):
        value = value[:, 0]
    elif not name.endswith("linear_attn.norm.weight"):
        [(name, value)] = norms_around_one(config, name, value)
    yield name.replace(".dt_bias", ".dt_proj.bias"), value


def delta_net_in_turn(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    """Qwen 3.5: besides, the value heads of all key heads in turn, and not of one key head after another."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]

    def in_turn(rows: np.ndarray) -> np.ndarray:
        heads = rows.reshape(keys, values // keys, -1, *rows.shape[1:])
        return heads.swapaxes(0, 1).reshape(rows.shape)

    if ".linear_attn." in name:
        before = 2 * keys * config["linear_key_head_dim"]
        if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            value = np.concatenate([value[:before], in_turn(value[before:])])
        elif name.endswith("out_proj.weight"):
            value = in_turn(value.T).T
        elif not name.endswith("norm.weight"):
            value = in_turn(value)
    yield from delta_net(config, name, value)


def llama4(config: Mapping[str, Any], name: str, value: np.ndarray) -> Named:
    if name.endswith("experts.gate_up_proj"):
        for part, half in zip(("gate", "up"), np.split(value.swapaxes(1, 2), 2, axis=1), strict=True):
            yield f"blk.{name.split('.')[2]}.ffn_{part}_exps.weight", half
    elif name.endswith("experts.down_proj"):
        yield f"blk.{name.split('.')[2]}.ffn_down_exps.weight", value.swapaxes(1, 2)
    else:
        yield name, value
