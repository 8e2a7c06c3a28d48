"""Adapters as mlx-lm saves them: adapter_config.json and adapters.safetensors."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.hugging_face import SafetensorsFile
from tokenline.checkpoint.low_rank import LowRank, low_rank
from tokenline.errors import CheckpointError

_LAYER = re.compile(r"(?:.*\.)?layers\.(\d+)\.(.+)")
_PARTS = {"lora": {"lora_a", "lora_b"}, "dora": {"lora_a", "lora_b", "m"}}


def read_mlx(config: Mapping[str, Any], file: SafetensorsFile, layers: int) -> dict[str, LowRank]:
    """By module; a model of so many layers. CheckpointError, naming the setting or the tensor, for what is not the
    low-rank term of a projection."""
    kind, settings = config.get("fine_tune_type", "lora"), config.get("lora_parameters")
    if kind not in _PARTS:
        raise CheckpointError(f"it is of the fine_tune_type {kind!r}", "give a LoRA or DoRA adapter")
    if not isinstance(settings, Mapping) or not {"rank", "scale"} <= set(settings):
        raise CheckpointError("its lora_parameters have no rank or no scale", "mend adapter_config.json")
    rank, scale = settings["rank"], settings["scale"]
    if not isinstance(rank, int) or not isinstance(scale, int | float):
        raise CheckpointError(f"it has the rank {rank!r} and the scale {scale!r}", "mend adapter_config.json")
    named: dict[str, set[str]] = defaultdict(set)
    for name in file.names():
        module, _, part = name.rpartition(".")
        named[module].add(part)
    terms = {}
    for module, parts in named.items():
        if parts != _PARTS[kind]:
            raise CheckpointError(
                f"{module} has {' and '.join(sorted(parts))} where {kind} has {', '.join(sorted(_PARTS[kind]))}",
                "fetch the adapter again",
            )
        _require_trained(config, settings.get("keys"), module, layers)
        a, b = (file.read(f"{module}.{part}") for part in ("lora_a", "lora_b"))
        magnitude = file.read(f"{module}.m") if "m" in parts else None
        terms[module] = low_rank(module, a.T, b.T, magnitude, rank, scale)
    return terms


def _require_trained(config: Mapping[str, Any], keys: Any, module: str, layers: int) -> None:
    """`num_layers` counts from the last, none or less than one are all; `keys` are names below a layer, or whole."""
    match = _LAYER.fullmatch(module)
    count = config.get("num_layers") or 0
    early = match is not None and isinstance(count, int) and 0 < count < layers - int(match[1])
    if keys is not None:
        unnamed = module not in keys and (match is None or match[2] not in keys or early)
    else:
        unnamed = match is None or early
    if unnamed:
        raise CheckpointError(
            f"{module} has matrices and is not among what adapter_config.json trains",
            "configuration and weights belong to different adapters",
        )
