"""Tokens whose keys carry them as tags, pushed into a cache: what each query may see is then a list of tags."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenline.cache import DenseCache
from tokenline.ops import Ops

HEADS, SIZE = 2, 4


def keys_of(tags: Sequence[Sequence[int]]) -> np.ndarray:
    return np.asarray(tags, np.float32)[:, None, :, None] * np.ones((1, HEADS, 1, SIZE), np.float32)


def push(ops: Ops, cache: DenseCache, tags: Sequence[Sequence[int]]) -> list[list[list[int]]]:
    """Append tags [rows][T]: the tags that each query sees, [rows][T][…], by mask and keys; values must be theirs."""
    queries = len(tags[0])
    mask = cache.mask(queries)
    keys = keys_of(tags)
    held, values = ops.read(list(cache.update(ops.array(keys), ops.array(-keys))))
    np.testing.assert_array_equal(values, -held)
    np.testing.assert_array_equal(held[:, 0], held[:, 1])
    shape = (len(tags), queries, held.shape[2])
    if mask is None:
        seen = np.ones(shape, bool)
    elif isinstance(mask, str):
        assert mask == "causal"
        seen = np.broadcast_to(np.tril(np.ones(shape[1:], bool), shape[2] - queries), shape)
    else:
        seen = np.broadcast_to(ops.read([mask])[0][:, 0], shape)
    tags_held = held[:, 0, :, 0].astype(int)
    return [
        [tags_held[row][seen[row, query]].tolist() for query in range(queries)] for row in range(len(tags))
    ]


def numbers(count: int, first: int = 1) -> list[int]:
    return list(range(first, first + count))
