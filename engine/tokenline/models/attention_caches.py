"""Which cache each attention layer has, by what a configuration says of its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenline.cache import AttentionCache, ChunkedCache, DenseCache, WindowCache
from tokenline.errors import CheckpointError
from tokenline.models.config import Sizes
from tokenline.ops.base import Ops

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
CHUNKED = "chunked_attention"
# The kinds that do not see everything: their cache, and the key that says how much of it.
_PARTS = {SLIDING: (WindowCache, "sliding_window"), CHUNKED: (ChunkedCache, "attention_chunk_size")}
_OLDER = {"attention": FULL, "mamba": LINEAR}  # what hybrids published before transformers 5 say


def layer_types(config: Mapping[str, Any], layers: int, default: Callable[[int], str]) -> list[str]:
    """`layer_types` where it is told, else the family's rule; CheckpointError where it does not fit the layers."""
    told = config.get("layer_types") or [default(index) for index in range(layers)]
    if len(told) != layers:
        raise CheckpointError(
            f"layer_types names {len(told)} layers, the model has {layers}", "mend config.json"
        )
    return [_OLDER.get(kind, kind) for kind in told]


def windowed(config: Mapping[str, Any]) -> str:
    """The kind of every layer of a family that slides where a window is told."""
    return FULL if config.get("sliding_window") is None else SLIDING


def attention_cache(
    ops: Ops, sizes: Sizes, kind: str = FULL, window: int | None = None
) -> Callable[[], AttentionCache]:
    """Makes the cache of a layer of that kind; CheckpointError for one that sees a part of unknown length (`window`,
    a chunk's length where attention is chunked)."""
    if kind == FULL:
        return lambda: DenseCache(ops, sizes.key_value_heads, sizes.head)
    if kind not in _PARTS:
        raise CheckpointError(
            f"attention of the kind {kind!r} is not supported", f"supported: {', '.join((FULL, *_PARTS))}"
        )
    made, key = _PARTS[kind]
    if not isinstance(window, int) or window < 1:
        raise CheckpointError(f"{kind} with the {key} {window!r}", f"mend {key} in config.json")
    return lambda: made(ops, window, sizes.key_value_heads, sizes.head)
