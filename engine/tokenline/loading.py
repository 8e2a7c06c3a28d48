"""From what a user typed to a network on a backend, with its adapters: what does not fit together is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenline.checkpoint.adapters import Adapters
from tokenline.checkpoint.checkpoint import Checkpoint
from tokenline.checkpoint.open import open_checkpoint
from tokenline.checkpoint.open_adapters import open_adapters
from tokenline.errors import CheckpointError
from tokenline.models import FAMILIES, Model
from tokenline.models.text_part import text_config
from tokenline.ops import Ops


@dataclass(frozen=True)
class Loaded:
    checkpoint: Checkpoint
    adapters: Adapters
    network: Model


def load_network(
    ops: Ops, model: str, adapters: Mapping[str, str | Path], context_length: int | None
) -> Loaded:
    """CheckpointError, with the mend, where a file, an adapter or the context does not fit the family."""
    checkpoint = open_checkpoint(model, FAMILIES)
    opened = open_adapters(adapters, text_config(checkpoint.config).get("num_hidden_layers", 0))
    checkpoint.tensors.adapters = opened
    limit = text_config(checkpoint.config).get("max_position_embeddings")
    if context_length is not None and not 1 < context_length <= (limit or context_length):
        raise CheckpointError(
            f"a context of {context_length} tokens is outside what {checkpoint.name} was made for",
            f"use 2 to {limit}",
        )
    network = FAMILIES[checkpoint.family](ops, checkpoint.config, checkpoint.tensors, context_length)
    unused = checkpoint.tensors.unused()
    if unused:
        raise CheckpointError(
            f"{checkpoint.name} holds {len(unused)} tensors that a {checkpoint.family} does not have, "
            f"such as {unused[0]}",
            "its config.json names the wrong family",
        )
    opened.require_all_taken()
    return Loaded(checkpoint, opened, network)
