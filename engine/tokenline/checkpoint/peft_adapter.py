"""Adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokenline.checkpoint.hugging_face import SafetensorsFile
from tokenline.checkpoint.low_rank import LowRank, low_rank
from tokenline.errors import CheckpointError

# Older writers put the adapter's own name, "default", behind the part.
_TENSOR = re.compile(
    r"base_model\.model\.(?P<module>.+)\.(?P<part>lora_A|lora_B|lora_magnitude_vector)(\.default)?(\.weight)?"
)
_READ = {
    "peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "target_modules",
    "exclude_modules", "layers_to_transform", "layers_pattern", "bias", "init_lora_weights",
}  # fmt: skip
# What says nothing about what a trained adapter adds: where it came from, how it was trained, how the base stores its
# matrices (`fan_in_fan_out`), and settings of variants that are off.
_WITHOUT_EFFECT = {
    "auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode", "peft_version",
    "lora_dropout", "fan_in_fan_out", "loftq_config", "eva_config", "corda_config", "lora_ga_config",
    "megatron_core", "qalora_group_size", "runtime_config",
}  # fmt: skip
_INITS_THAT_KEEP_THE_BASE = ("gaussian", "eva", "orthogonal")
_PLAIN = "give a plain LoRA or DoRA adapter, or merge this one into its model"


def read_peft(config: Mapping[str, Any], file: SafetensorsFile) -> dict[str, LowRank]:
    """By module, as the model it was trained on names them. CheckpointError, naming the setting or the tensor, for
    whatever is not the low-rank term of a projection."""
    _require_plain(config)
    parts: dict[str, dict[str, str]] = defaultdict(dict)
    for name in file.names():
        match = _TENSOR.fullmatch(name)
        if match is None:
            raise CheckpointError(f"{name} is no part of a projection's low-rank term", _PLAIN)
        parts[match["module"]][match["part"]] = name
    dora = bool(config.get("use_dora"))
    needed = {"lora_A", "lora_B", *(["lora_magnitude_vector"] if dora else [])}
    terms = {}
    for module, named in parts.items():
        if set(named) != needed:
            raise CheckpointError(
                f"{module} has {' and '.join(sorted(named))} where {'DoRA' if dora else 'LoRA'} has "
                f"{', '.join(sorted(needed))}",
                "fetch the adapter again",
            )
        _require_targeted(config, module)
        rank, scale = _rank_and_scale(config, module)
        read: dict[str, np.ndarray] = {part: file.read(name) for part, name in named.items()}
        magnitude = read.get("lora_magnitude_vector")
        terms[module] = low_rank(module, read["lora_A"], read["lora_B"], magnitude, rank, scale)
    return terms


def _require_plain(config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise CheckpointError(f"it is of the type {config.get('peft_type')!r}", "give a LoRA or DoRA adapter")
    if config.get("bias", "none") != "none":
        raise CheckpointError(f"it trains biases (bias {config['bias']!r})", _PLAIN)
    for key, value in config.items():
        if value and key not in _READ | _WITHOUT_EFFECT:
            raise CheckpointError(f"its {key} {value!r} is not supported", _PLAIN)
    init = config.get("init_lora_weights")
    if isinstance(init, str) and init.lower() not in _INITS_THAT_KEEP_THE_BASE:
        raise CheckpointError(
            f"it was begun by {init!r}, which changes the model's own weights as well",
            "convert it to a plain LoRA as PEFT saves it",
        )


def _require_targeted(config: Mapping[str, Any], module: str) -> None:
    """What PEFT would leave out although the file has it was not meant for use."""
    targets, excluded = config.get("target_modules"), config.get("exclude_modules")
    targeted = targets in (None, "all-linear") or _names(targets, module)
    if not targeted or (excluded and _names(excluded, module)) or not _transformed(config, module):
        raise CheckpointError(
            f"{module} has matrices and is not among what adapter_config.json targets",
            "configuration and weights belong to different adapters",
        )


def _names(targets: str | Sequence[str], module: str) -> bool:
    """A string is an expression for whole names, a list has their ends."""
    if isinstance(targets, str):
        return _matches(targets, module)
    return any(module == target or module.endswith(f".{target}") for target in targets)


def _transformed(config: Mapping[str, Any], module: str) -> bool:
    layers = config.get("layers_to_transform")
    if layers is None or layers == []:
        return True
    patterns = config.get("layers_pattern") or [r"[^.]*"]
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        match = re.match(rf"(?:^|.*?\.){pattern}\.(\d+)\.", module)
        if match is not None:
            return int(match[1]) in ([layers] if isinstance(layers, int) else layers)
    return False


def _rank_and_scale(config: Mapping[str, Any], module: str) -> tuple[int, float]:
    rank = _of_pattern(config.get("rank_pattern"), module, config.get("r"))
    alpha = _of_pattern(config.get("alpha_pattern"), module, config.get("lora_alpha"))
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise CheckpointError(
            f"{module} has the rank {rank!r} and the lora_alpha {alpha!r}", "mend adapter_config.json"
        )
    return rank, alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _of_pattern(patterns: Mapping[str, Any] | None, module: str, default: Any) -> Any:
    """The first whose expression is the module's name or its end."""
    for pattern, value in (patterns or {}).items():
        if _matches(rf"(.*\.)?({pattern})", module):
            return value
    return default


def _matches(pattern: str, module: str) -> bool:
    try:
        return re.fullmatch(pattern, module) is not None
    except re.error as error:
        raise CheckpointError(
            f"{pattern!r} is no regular expression ({error})", "mend adapter_config.json"
        ) from error
