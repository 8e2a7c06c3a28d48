"""The language model of a checkpoint that holds more (a vision tower, a projector)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What says how the language model is built: the whole configuration, or its `text_config`."""
    return config.get("text_config") or config


def text_part(config: Mapping[str, Any], tensors: Tensors) -> tuple[Mapping[str, Any], Tensors]:
    """The language model's configuration and matrices, named as in a checkpoint that holds nothing else; both as they
    are in one that does not."""
    own = text_config(config)
    return own, tensors if own is config else tensors.below("language_model.")
