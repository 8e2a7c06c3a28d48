"""Families by the `model_type` of their config.json."""

from __future__ import annotations

from collections.abc import Callable

from tokenline.models.base import Model
from tokenline.models.granite_hybrid import granitemoehybrid
from tokenline.models.lfm2 import lfm2
from tokenline.models.llama import llama
from tokenline.models.mamba import mamba2
from tokenline.models.qwen import qwen2, qwen3

_DENSE = {
    "llama": llama,
    "qwen2": qwen2,
    "qwen3": qwen3,
}
_EXPERTS: dict[str, Callable[..., Model]] = {}
_RECURRENT: dict[str, Callable[..., Model]] = {
    "granitemoehybrid": granitemoehybrid,
    "lfm2": lfm2,
    "mamba2": mamba2,
}

FAMILIES: dict[str, Callable[..., Model]] = {**_DENSE, **_EXPERTS, **_RECURRENT}

__all__ = ["FAMILIES", "Model"]
