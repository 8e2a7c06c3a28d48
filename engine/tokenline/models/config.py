"""The part of a config.json that most families share, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tokenline.errors import CheckpointError


@dataclass(frozen=True)
class Sizes:
    width: int
    layers: int
    heads: int
    key_value_heads: int
    head: int  # entries of a head
    eps: float
    vocabulary: int
    context_length: int

    @classmethod
    def of(cls, config: Mapping[str, Any], *, head: int | None = None, eps: float = 1e-6) -> Self:
        """By their usual keys; a family's default for the size of a head and the norms' epsilon. CheckpointError for
        a key that is missing and for sizes that make no model."""
        heads = needed(config, "num_attention_heads")
        width = needed(config, "hidden_size")
        made = cls(
            width=width,
            layers=needed(config, "num_hidden_layers"),
            heads=heads,
            key_value_heads=config.get("num_key_value_heads") or heads,
            head=config.get("head_dim")
            or head
            or (width // heads if isinstance(heads, int) and heads else 0),
            eps=config.get("rms_norm_eps", eps),
            vocabulary=needed(config, "vocab_size"),
            context_length=config.get("max_position_embeddings", 2048),
        )
        counts = (made.width, made.layers, made.heads, made.key_value_heads, made.head, made.vocabulary)
        if any(not isinstance(n, int) or n < 1 for n in counts) or made.heads % made.key_value_heads:
            raise CheckpointError(f"the configuration's sizes make no model: {counts}", "mend config.json")
        return made


def needed(config: Mapping[str, Any], key: str, *others: str) -> Any:
    """The value, by the first of its names that is there; CheckpointError where the configuration lacks it."""
    for name in (key, *others):
        if name in config:
            return config[name]
    raise CheckpointError(f"the configuration lacks {key!r}", "give a complete config.json")


def require(config: Mapping[str, Any], family: str, **supported: Sequence[Any]) -> None:
    """CheckpointError where a key says something else than what is supported; an absent key says the first."""
    for key, values in supported.items():
        said = config.get(key, values[0])
        if said not in values:
            raise CheckpointError(
                f"a {family} with {key} {said!r} is not supported",
                f"supported: {', '.join(str(value) for value in values)}",
            )
