"""Families by the `model_type` of their config.json."""

from __future__ import annotations

from collections.abc import Callable

from tokenline.models.base import Model
from tokenline.models.cohere2 import cohere2
from tokenline.models.deepseek import deepseek_v3
from tokenline.models.falcon_h1 import falcon_h1
from tokenline.models.gemma import gemma2, gemma3
from tokenline.models.glm4 import glm4
from tokenline.models.gpt_oss import gpt_oss
from tokenline.models.granite import granite, minicpm
from tokenline.models.granite_hybrid import granitemoehybrid
from tokenline.models.lfm2 import lfm2
from tokenline.models.llama import llama, mistral, smollm3
from tokenline.models.llama4 import llama4
from tokenline.models.mamba import mamba2
from tokenline.models.mixtral import mixtral
from tokenline.models.nemotron_h import nemotron_h
from tokenline.models.olmo2 import olmo2
from tokenline.models.phi3 import phi3
from tokenline.models.qwen import qwen2, qwen3, qwen3_moe
from tokenline.models.qwen_next import qwen3_5, qwen3_next

_DENSE = {
    "cohere2": cohere2,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3_text": gemma3,
    "glm4": glm4,
    "granite": granite,
    "llama": llama,
    "minicpm": minicpm,
    "mistral": mistral,
    "olmo2": olmo2,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "smollm3": smollm3,
}
_EXPERTS: dict[str, Callable[..., Model]] = {
    "deepseek_v3": deepseek_v3,
    "gpt_oss": gpt_oss,
    "llama4": llama4,
    "llama4_text": llama4,
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
