"""What each block of a transformers model leaves in one forward, by forward hooks: its code stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _kept(value: Any) -> np.ndarray:
    array = value[0] if isinstance(value, tuple) else value
    return array[0].float().numpy().copy()


def taps_of(model: Any, input_ids: Any) -> dict[str, np.ndarray]:
    """Float32 [tokens, width] by the names of `TappedArm`, in the network's order; input_ids [1, tokens].

    AttributeError for a family that does not name its blocks as Llama does.
    """
    found: dict[str, np.ndarray] = {}
    handles: list[Any] = []

    def after(name: str) -> Callable[..., None]:
        def hook(module: Any, given: Any, output: Any) -> None:
            found[name] = _kept(output)

        return hook

    def before(name: str) -> Callable[..., None]:
        def hook(module: Any, given: Any) -> None:
            found[name] = _kept(given)

        return hook

    body = model.model
    try:
        handles.append(body.embed_tokens.register_forward_hook(after("embedding")))
        for index, layer in enumerate(body.layers):
            name = f"layers.{index}"
            handles.append(layer.input_layernorm.register_forward_hook(after(f"{name}.attention_norm")))
            # What this norm is given is the residual stream after attention.
            norm = layer.post_attention_layernorm
            handles.append(norm.register_forward_pre_hook(before(f"{name}.attention")))
            handles.append(norm.register_forward_hook(after(f"{name}.mlp_norm")))
            handles.append(layer.register_forward_hook(after(f"{name}.mlp")))
        handles.append(body.norm.register_forward_hook(after("norm")))
        found["head"] = _kept(model(input_ids, use_cache=False).logits)
    finally:
        for handle in handles:
            handle.remove()
    return found
