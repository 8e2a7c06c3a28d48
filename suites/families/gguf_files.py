"""Writes a tiny checkpoint as a GGUF file in float32, as llama.cpp's converter would: its names by the `gguf` package,
its metadata by `gguf_forms`, its values by `gguf_values`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf_forms import COMMON, Form
from gguf_values import Named
from safetensors.torch import load_file

EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
# transformers' names of Mixtral's expert matrices in the converter's tables.
MERGED = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}


def write_gguf(
    directory: Path,
    target: Path,
    form: Form,
    *,
    stored: Callable[[str, np.ndarray], GGMLQuantizationType] | None = None,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """The directory as a file. `stored` says in which type a matrix is kept (float32); `metadata` and `tensors` are
    added to the file's, and a value None takes a key away."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config", config)
    weights = {
        name.replace("model.language_model.", "model.").removeprefix("language_model."): value
        for name, value in load_file(directory / "model.safetensors").items()
    }
    writer = GGUFWriter(target, gguf.MODEL_ARCH_NAMES[form.architecture])
    said = {
        f"{writer.arch}.{key}": value
        for key, value in {
            **{
                gguf_key: config[key]
                for key, gguf_key in COMMON.items()
                if config.get(key) is not None and key not in form.without
            },
            **form.metadata(config),
        }.items()
    }
    if not config.get("num_local_experts", 1):
        del said[f"{writer.arch}.expert_used_count"], said[f"{writer.arch}.expert_count"]
    for key, value in {**said, **_vocabulary(directory), **(metadata or {})}.items():
        _add(writer, key, value)
    named = {**dict(_named(config, weights, form)), **_longrope(config), **(tensors or {})}
    for name, value in named.items():
        if isinstance(value, tuple):
            writer.add_tensor(name, value[0], raw_dtype=value[1])
            continue
        value = np.ascontiguousarray(value, np.float32)
        kind = stored(name, value) if stored is not None else GGMLQuantizationType.F32
        if kind == GGMLQuantizationType.F32:
            writer.add_tensor(name, value)
        else:
            writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _named(config: Mapping[str, Any], weights: Mapping[str, Any], form: Form) -> Named:
    names = gguf.get_tensor_name_map(form.architecture, config["num_hidden_layers"])
    experts: dict[str, dict[int, np.ndarray]] = {}
    for name, weight in weights.items():
        if name.endswith("_scales"):
            continue
        if name.endswith("_blocks"):
            yield from _mxfp4(name, weight.numpy(), weights[name.replace("_blocks", "_scales")].numpy())
            continue
        value = weight.float().numpy()
        if match := EXPERT.fullmatch(name):
            layer = match[1].split(".")[2]
            whole = f"blk.{layer}.ffn_{MERGED[match[3]]}_exps.weight"
            experts.setdefault(whole, {})[int(match[2])] = value
            continue
        for told, changed in form.change(config, name, value):
            yield _gguf_name(names, told), changed
    for whole, each in experts.items():
        yield whole, np.stack([each[index] for index in sorted(each)])


def _longrope(config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    scaling = config.get("rope_scaling") or {}
    return {
        f"rope_factors_{length}.weight": np.asarray(scaling[f"{length}_factor"], np.float32)
        for length in ("long", "short")
        if f"{length}_factor" in scaling
    }


def _gguf_name(names: gguf.TensorNameMap, name: str) -> str:
    if name.startswith("blk."):
        return name
    if name.endswith(("e_score_correction.bias", "e_score_correction_bias")):
        return f"blk.{name.split('.')[2]}.exp_probs_b.bias"
    made = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if made is None:
        raise KeyError(name)
    return made


def _mxfp4(name: str, blocks: np.ndarray, scales: np.ndarray) -> Named:
    """ggml keeps a block's first sixteen numbers in the low halves of its bytes and the others in the high ones."""
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    packed = np.concatenate([scales[..., None], codes[..., :16] | codes[..., 16:] << 4], axis=-1)
    packed = packed.reshape(*scales.shape[:-1], -1)
    layer, kind = name.split(".")[2], GGMLQuantizationType.MXFP4
    if "gate_up_proj" in name:
        for index, part in enumerate(("gate", "up")):
            yield f"blk.{layer}.ffn_{part}_exps.weight", (np.ascontiguousarray(packed[:, index::2]), kind)
    else:
        yield f"blk.{layer}.ffn_down_exps.weight", (packed, kind)


def _vocabulary(directory: Path) -> dict[str, Any]:
    tokenizer = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    special = {entry["content"] for entry in tokenizer["added_tokens"]}
    vocabulary = {entry["content"]: entry["id"] for entry in tokenizer["added_tokens"]} | tokenizer["model"][
        "vocab"
    ]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    settings = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in tokenizer["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": settings["chat_template"],
    }


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)
