"""The frame of every family: embedding, layers of residual blocks, a norm, a head."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

from tokenline.cache import LayerCache
from tokenline.models.forward import Forward
from tokenline.models.head import Head
from tokenline.models.layers import Embedding
from tokenline.ops.base import Array


class Norm(Protocol):
    def __call__(self, x: Array) -> Array: ...


class Block(Protocol):
    """A mixer (attention, a state space) or an MLP: [B, T, width] -> [B, T, width]."""

    @property
    def nbytes(self) -> int: ...
    def __call__(self, x: Array, forward: Forward, cache: Any) -> Array: ...


class Residual:
    """x + scale * after(block(before(x))); a norm that a family does not have is None.

    `name` is the tap's: `layers.N.attention`, `layers.N.mlp`, or what else the block is.
    """

    def __init__(
        self,
        name: str,
        block: Block,
        *,
        before: Norm | None = None,
        after: Norm | None = None,
        scale: float = 1.0,
    ) -> None:
        self.name, self.block = name, block
        self._norm_name = f"{name}_norm"
        self._before, self._after, self._scale = before, after, scale

    def run(self, x: Array, forward: Forward, cache: Any) -> Generator[tuple[str, Array], None, Array]:
        """Yields what the norm before it leaves, then the stream after it."""
        normed = x
        if self._before is not None:
            normed = self._before(x)
            yield self._norm_name, normed
        y = self.block(normed, forward, cache)
        if self._after is not None:
            y = self._after(y)
        x = x + (y if self._scale == 1.0 else y * self._scale)
        yield self.name, x
        return x


class Layer:
    """Residual blocks in order, over one layer cache."""

    def __init__(self, residuals: Sequence[Residual], new_cache: Callable[[], LayerCache]) -> None:
        self._residuals = tuple(residuals)
        self.new_cache = new_cache
        self.nbytes = sum(each.block.nbytes for each in residuals)

    def blocks(
        self, x: Array, forward: Forward, cache: LayerCache
    ) -> Generator[tuple[str, Array], None, Array]:
        for residual in self._residuals:
            x = yield from residual.run(x, forward, cache)
        return x


def pre_norm_layer(
    index: int,
    mixer: Block,
    mlp: Block,
    norms: tuple[Norm, Norm],
    new_cache: Callable[[], LayerCache],
    *,
    mixer_name: str = "attention",
    scale: float = 1.0,
) -> Layer:
    """The usual layer: a mixer and an MLP, each after a norm of its own."""
    return Layer(
        [
            Residual(f"layers.{index}.{mixer_name}", mixer, before=norms[0], scale=scale),
            Residual(f"layers.{index}.mlp", mlp, before=norms[1], scale=scale),
        ],
        new_cache,
    )


def sandwich_layer(
    index: int,
    mixer: Block,
    mlp: Block,
    around_mixer: tuple[Norm, Norm],
    around_mlp: tuple[Norm, Norm],
    new_cache: Callable[[], LayerCache],
) -> Layer:
    """A mixer and an MLP, each between two norms: one of what it reads, one of what it adds."""
    return Layer(
        [
            Residual(f"layers.{index}.attention", mixer, before=around_mixer[0], after=around_mixer[1]),
            Residual(f"layers.{index}.mlp", mlp, before=around_mlp[0], after=around_mlp[1]),
        ],
        new_cache,
    )


class Decoder:
    """A family at one checkpoint on one backend (`base.Model`)."""

    def __init__(
        self,
        *,
        embedding: Embedding,
        layers: Sequence[Layer],
        norm: Norm,
        head: Head,
        context_length: int,
    ) -> None:
        self._embedding, self._layers, self._norm, self._head = embedding, list(layers), norm, head
        self.vocabulary_size = head.vocabulary_size
        self.context_length = context_length
        self.weight_bytes = head.nbytes + sum(layer.nbytes for layer in self._layers)

    def new_caches(self) -> list[LayerCache]:
        return [layer.new_cache() for layer in self._layers]

    def hidden(self, ids: Array, caches: Sequence[LayerCache]) -> Array:
        [(_, x)] = deque(self.blocks(ids, caches), maxlen=1)
        return x

    def blocks(self, ids: Array, caches: Sequence[LayerCache]) -> Iterator[tuple[str, Array]]:
        forward = Forward(ids.shape[1])
        x = self._embedding(ids)
        yield "embedding", x
        for layer, cache in zip(self._layers, caches, strict=True):
            x = yield from layer.blocks(x, forward, cache)
        yield "norm", self._norm(x)

    def logits(self, hidden: Array) -> Array:
        return self._head(hidden)
