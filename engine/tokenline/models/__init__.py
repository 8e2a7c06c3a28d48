"""Families by the `model_type` of their config.json."""

from __future__ import annotations

from collections.abc import Callable

from tokenline.models.base import Model
from tokenline.models.llama import Llama

FAMILIES: dict[str, Callable[..., Model]] = {"llama": Llama}

__all__ = ["FAMILIES", "Model"]
