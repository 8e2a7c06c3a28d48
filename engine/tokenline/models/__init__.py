"""Families by the `model_type` of their config.json."""

from __future__ import annotations

from collections.abc import Callable

from tokenline.models.base import Model
from tokenline.models.deepseek import deepseek_v3
from tokenline.models.gpt_oss import gpt_oss
from tokenline.models.llama import llama
from tokenline.models.mixtral import mixtral
from tokenline.models.qwen import qwen2, qwen3, qwen3_moe

_DENSE = {
    "llama": llama,
    "qwen2": qwen2,
    "qwen3": qwen3,
}
_EXPERTS: dict[str, Callable[..., Model]] = {
    "deepseek_v3": deepseek_v3,
    "gpt_oss": gpt_oss,
    "mixtral": mixtral,
    "qwen3_moe": qwen3_moe,
}
_RECURRENT: dict[str, Callable[..., Model]] = {}

FAMILIES: dict[str, Callable[..., Model]] = {**_DENSE, **_EXPERTS, **_RECURRENT}

__all__ = ["FAMILIES", "Model"]
