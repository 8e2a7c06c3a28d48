"""tokenline: an LLM inference engine on torch and MLX that says the same thing on every path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenline.errors import (
    BackendError,
    CacheFileError,
    CheckpointError,
    OverBudget,
    QueueFull,
    RequestError,
    TokenlineError,
)

if TYPE_CHECKING:
    from tokenline.client import Model

__all__ = [
    "BackendError",
    "CacheFileError",
    "CheckpointError",
    "OverBudget",
    "QueueFull",
    "RequestError",
    "TokenlineError",
    "load",
]


def load(model: str, **options: Any) -> Model:
    """Open a checkpoint; see `tokenline.client.load`, which is imported here because it takes a while."""
    from tokenline.client import load as load_model

    return load_model(model, **options)
