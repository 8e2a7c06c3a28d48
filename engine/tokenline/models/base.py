"""What the engine needs of a family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tokenline.cache import LayerCache
from tokenline.ops.base import Array


class Model(Protocol):
    """A family at one checkpoint on one backend; it asks no storage question."""

    vocabulary_size: int
    context_length: int
    weight_bytes: int  # read from memory in one decode step

    def new_caches(self) -> list[LayerCache]: ...

    def hidden(self, ids: Array, caches: Sequence[LayerCache]) -> Array:
        """ids [B, T], the next tokens of every row -> the normed last hidden states [B, T, width]."""
        ...

    def blocks(self, ids: Array, caches: Sequence[LayerCache]) -> Iterator[tuple[str, Array]]:
        """The forward that `hidden` runs, block by block, each array [B, T, width] by name; the last is `hidden`'s."""
        ...

    def logits(self, hidden: Array) -> Array:
        """[..., width] -> [..., V]."""
        ...
