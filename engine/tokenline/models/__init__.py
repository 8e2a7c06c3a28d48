"""Families by the `model_type` of their config.json."""

from __future__ import annotations

from collections.abc import Callable

from tokenline.models.base import Model
from tokenline.models.deepseek import deepseek_v3
from tokenline.models.falcon_h1 import falcon_h1
from tokenline.models.gpt_oss import gpt_oss
from tokenline.models.granite_hybrid import granitemoehybrid
from tokenline.models.lfm2 import lfm2
from tokenline.models.llama import llama
from tokenline.models.mamba import mamba2
from tokenline.models.mixtral import mixtral
from tokenline.models.nemotron_h import nemotron_h
from tokenline.models.qwen import qwen2, qwen3, qwen3_moe
from tokenline.models.qwen_next import qwen3_5, qwen3_next

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
_RECURRENT: dict[str, Callable[..., Model]] = {
    "falcon_h1": falcon_h1,
    "granitemoehybrid": granitemoehybrid,
    "lfm2": lfm2,
    "mamba2": mamba2,
    "nemotron_h": nemotron_h,
    "qwen3_5": qwen3_5,
    "qwen3_5_text": qwen3_5,
    "qwen3_next": qwen3_next,
}

FAMILIES: dict[str, Callable[..., Model]] = {**_DENSE, **_EXPERTS, **_RECURRENT}

__all__ = ["FAMILIES", "Model"]
