"""A batch of our caches beside mlx-lm's: {A, B}, then C joins, then A leaves; the same tagged tokens, step by step.

mlx-lm is the oracle of what every row sees. Where a row's entries lie in a buffer is either side's own affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tokenline.cache import DenseCache, RecurrentCache, WindowCache
from tokenline.ops import open_ops

OPS = open_ops("mlx", "float32", 1)  # before mlx-lm: it binds the BLAS

import mlx.core as mx  # noqa: E402
from mlx_lm.models import cache as mlx_lm  # noqa: E402

HEADS, SIZE = 2, 4
A, B, C = list(range(1, 8)), list(range(100, 140)), list(range(200, 203))


def keys_of(tags: Sequence[Sequence[int]]) -> mx.array:
    return mx.array(np.asarray(tags, np.float32)[:, None, :, None] * np.ones((1, HEADS, 1, SIZE), np.float32))


def seen(keys: Any, mask: Any) -> list[list[int]]:
    """Of each row the tags that its only query sees, sorted: a ring lies in an order of its own."""
    tags = np.array(keys)[:, 0, :, 0].astype(int)
    visible = np.ones(tags.shape, bool)
    if mask is not None:
        visible = np.broadcast_to(np.array(mask)[:, 0, 0], tags.shape)
    return [sorted(row[which].tolist()) for row, which in zip(tags, visible, strict=True)]


def ours_see(cache: DenseCache, tags: Sequence[Sequence[int]]) -> list[list[int]]:
    mask = cache.mask(1)
    keys, values = cache.update(keys_of(tags), -keys_of(tags))
    np.testing.assert_array_equal(np.array(keys), -np.array(values))
    return seen(keys, mask)


def theirs_see(cache: Any, tags: Sequence[Sequence[int]]) -> list[list[int]]:
    mask = cache.make_mask(1, return_array=True)
    keys, values = cache.update_and_fetch(keys_of(tags), -keys_of(tags))
    np.testing.assert_array_equal(np.array(keys), -np.array(values))
    return seen(keys, mask)


# Full attention, and windows that are filled by no row, by B alone, by every row.
WINDOWS = [None, 200, 30, 4]


def ours(window: int | None, tags: list[int]) -> DenseCache:
    made = DenseCache(OPS, HEADS, SIZE) if window is None else WindowCache(OPS, window, HEADS, SIZE)
    made.mask(len(tags))
    made.update(keys_of([tags]), -keys_of([tags]))
    return made


def theirs(window: int | None, tags: list[int]) -> Any:
    made = mlx_lm.KVCache() if window is None else mlx_lm.RotatingKVCache(max_size=window)
    made.update_and_fetch(keys_of([tags]), -keys_of([tags]))
    return made


def merged(window: int | None, *rows: list[int]) -> Any:
    kind = mlx_lm.BatchKVCache if window is None else mlx_lm.BatchRotatingKVCache
    return kind.merge([theirs(window, tags) for tags in rows])


def in_step(cache: DenseCache, reference: Any, first: int, steps: int) -> None:
    for step in range(steps):
        tags = [[first + 100 * step + row] for row in range(cache.rows)]
        mine = ours_see(cache, tags)
        assert mine == theirs_see(reference, tags)
        assert all(row[-1] == tag for row, [tag] in zip(mine, tags, strict=True))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("rows", [(A, B, C), (B, A, C), (C, A, B)], ids=["ab+c-a", "ba+c-b", "ca+b-c"])
def test_attention_sees_what_mlx_lms_batch_sees(window: int | None, rows: tuple[list[int], ...]) -> None:
    first, second, late = rows
    batch, reference = ours(window, first), merged(window, first, second)
    batch.extend(ours(window, second))
    in_step(batch, reference, 1000, 5)
    batch.extend(ours(window, late))
    reference.extend(merged(window, late))
    in_step(batch, reference, 2000, 40)  # past the window of 30 for every row
    batch.filter([1, 2])
    reference.filter(mx.array([1, 2]))
    in_step(batch, reference, 10_000, 6)
    alone, other = batch.extract(1), reference.extract(1)
    assert alone.length == other.offset
    assert alone.mask(1) is None
    assert ours_see(alone, [[99_999]]) == seen(
        other.update_and_fetch(keys_of([[99_999]]), keys_of([[99_999]]))[0], None
    )
    batch.filter([0])
    reference.filter(mx.array([0]))
    assert (batch.padding, batch.mask(1)) == ([0], None)  # a lone row has no padding and no mask
    in_step(batch, reference, 20_000, 3)


def test_a_recurrent_batch_holds_what_mlx_lms_does() -> None:
    def mine(*tags: int) -> RecurrentCache:
        made = RecurrentCache(OPS)
        made.update(4, *state_of(tags))
        return made

    def reference_of(*tags: int) -> Any:
        made = mlx_lm.ArraysCache(2)
        made[0], made[1] = state_of(tags)
        return made

    def state_of(tags: Sequence[int]) -> tuple[mx.array, mx.array]:
        rows = np.asarray(tags, np.float32)
        return mx.array(rows[:, None, None] * np.ones((1, 3, 5), np.float32)), mx.array(-rows[:, None])

    def same(cache: RecurrentCache, reference: Any) -> None:
        assert cache.arrays is not None
        for array, other in zip(cache.arrays, reference.cache, strict=True):
            np.testing.assert_array_equal(np.array(array), np.array(other))

    batch, reference = mine(1), mlx_lm.ArraysCache.merge([reference_of(1), reference_of(2)])
    batch.extend(mine(2))
    same(batch, reference)
    batch.extend(mine(3))
    reference.extend(reference_of(3))
    same(batch, reference)
    step = state_of([11, 12, 13])
    batch.update(1, *step)
    reference[0], reference[1] = step
    batch.filter([1, 2])
    reference.filter(mx.array([1, 2]))
    same(batch, reference)
    same(batch.extract(1), reference.extract(1))
    assert np.array(batch.extract(1).arrays[1]).tolist() == [[-13]]
