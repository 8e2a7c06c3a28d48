"""Families by the `model_type` of their config.json."""

from __future__ import annotations

from collections.abc import Callable

from tokenline.models.base import Model
from tokenline.models.cohere2 import cohere2
from tokenline.models.gemma import gemma2, gemma3
from tokenline.models.glm4 import glm4
from tokenline.models.granite import granite, minicpm
from tokenline.models.llama import llama, mistral, smollm3
from tokenline.models.olmo2 import olmo2
from tokenline.models.phi3 import phi3
from tokenline.models.qwen import qwen2, qwen3

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
_EXPERTS: dict[str, Callable[..., Model]] = {}
_RECURRENT: dict[str, Callable[..., Model]] = {}

FAMILIES: dict[str, Callable[..., Model]] = {**_DENSE, **_EXPERTS, **_RECURRENT}

__all__ = ["FAMILIES", "Model"]
