"""From the last hidden state to logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.layers import Embedding, Linear
from tokenline.ops.base import Array, Ops


class Head:
    """The vocabulary's projection, tied to the embedding or of its own; then `scale`, then cap * tanh(logits / cap)."""

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        embedding: Embedding,
        *,
        tied: bool,
        name: str = "lm_head",
        bias: bool = False,
        scale: float = 1.0,
        cap: float | None = None,
    ) -> None:
        self._ops, self._scale, self._cap = ops, scale, cap
        self.vocabulary_size = embedding.vocabulary_size
        if tied:
            tensors.leave(f"{name}.weight")
            self._linear = None
            self._weight = ops.tied(embedding.table)
            self.nbytes = ops.weight_bytes(self._weight)
        else:
            self._linear = Linear(
                ops, tensors, [(name, embedding.vocabulary_size)], embedding.width, bias=bias
            )
            self.nbytes = self._linear.nbytes

    def __call__(self, hidden: Array) -> Array:
        linear = self._linear
        logits = self._ops.linear(hidden, self._weight) if linear is None else linear(hidden)
        if self._scale != 1.0:
            logits = logits * self._scale
        if self._cap is not None:
            logits = self._ops.tanh(logits / self._cap) * self._cap
        return logits


def is_tied(
    config: Mapping[str, Any], tensors: Tensors, *, name: str = "lm_head", default: bool | None = None
) -> bool:
    """What the configuration says; where it says nothing, the family's default, or whether there is no head."""
    said = config.get("tie_word_embeddings")
    if said is not None:
        return bool(said)
    return f"{name}.weight" not in tensors if default is None else default
