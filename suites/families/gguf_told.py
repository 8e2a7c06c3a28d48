"""Where a GGUF file cannot say what a tiny checkpoint's configuration does, or llama.cpp reads it otherwise: what the
checkpoint is told instead before it is written, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

LAYER = re.compile(r"(.*\.layers\.)(\d+)(\..*)")


@dataclass(frozen=True)
class Told:
    """`changes` are keys of config.json. `layers`: of which layers of the checkpoint it is made, in order; lists
    with an entry for each layer follow."""

    why: str
    changes: dict[str, Any] = field(default_factory=dict)
    layers: Sequence[int] | None = None


HEAD = "The file lacks query_pre_attn_scalar: llama.cpp takes the size of a head (27B: the width over the heads)."
TOLD: dict[str, Told] = {
    "deepseek_v3": Told(
        "The file holds mscale_all_dim only, and llama.cpp takes mscale for the same. It norms what comes out of the "
        "narrow projections with rms_norm_eps, transformers with 1e-6, which is what the published rms_norm_eps is.",
        {"rms_norm_eps": 1e-6}
        | {
            key: {
                "type": "yarn",
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 16.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 0.7,
                "mscale_all_dim": 0.7,
                "original_max_position_embeddings": 64,
            }
            for key in ("rope_scaling", "rope_parameters")
        },
    ),
    "gemma2": Told(HEAD, {"query_pre_attn_scalar": 16}),
    "gemma3": Told(HEAD, {"query_pre_attn_scalar": 16}),
    "llama4": Told(
        "The file lacks the chunk and the temperature's steps: llama.cpp takes the published 8192, 8192 and 0.1.",
        {
            "attention_chunk_size": 8192,
            "floor_scale": 8192,
            "attn_scale": 0.1,
        },
    ),
    "mistral": Told("llama.cpp's llama has no sliding window.", {"sliding_window": None}),
    "nemotron_h": Told("Layers are MLPs or experts, not both.", layers=(0, 1, 2, 4, 5)),
    "nemotron_h_moe": Told("Layers are MLPs or experts, not both.", layers=(0, 3, 2, 4, 3)),
    "qwen3_5": Told(
        "llama.cpp norms the delta net's keys and queries with rms_norm_eps, the published code with 1e-6, which is "
        "what the published rms_norm_eps is.",
        {"rms_norm_eps": 1e-6},
    ),
    "qwen3_moe": Told("Every layer has experts.", layers=(0, 2)),
    "qwen3_next": Told(
        "Every layer has experts; and as qwen3_5.",
        {"rms_norm_eps": 1e-6, "mlp_only_layers": []},
        (1, 1, 2, 3),
    ),
}
# gpt-oss is compared with llama.cpp as that reads it: the file cannot say that yarn's ramp is not cut to whole
# dimensions, and llama.cpp always cuts it.
GPT_OSS_CUT = {"truncate": True}


def told(checkpoint: Path, directory: Path, what: Told) -> Path:
    """The checkpoint with what it is told, in a directory of its own."""
    directory.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).write_bytes((checkpoint / name).read_bytes())
    whole = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    config = whole.get("text_config", whole)
    weights = load_file(checkpoint / "model.safetensors")
    if what.layers is not None:
        count = config["num_hidden_layers"]
        for key, value in list(config.items()):
            if isinstance(value, list) and len(value) == count:
                config[key] = [value[index] for index in what.layers]
        pattern = config.get("hybrid_override_pattern")
        if pattern is not None:
            config["hybrid_override_pattern"] = "".join(pattern[index] for index in what.layers)
        config["num_hidden_layers"] = len(what.layers)
        weights = {new: value for name, value in weights.items() for new in _renumbered(name, what.layers)}
        config.pop("mlp_only_layers", None)
    config.update(what.changes)
    (directory / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    save_file({name: value.clone() for name, value in weights.items()}, directory / "model.safetensors")
    return directory


def _renumbered(name: str, layers: Sequence[int]) -> list[str]:
    match = LAYER.fullmatch(name)
    if match is None:
        return [name]
    return [f"{match[1]}{new}{match[3]}" for new, old in enumerate(layers) if old == int(match[2])]
