"""The whole contract of the dense cache, without a model: every token's key carries the token as a tag."""

from __future__ import annotations

import numpy as np
import pytest

from tokenline.cache import DenseCache
from tokenline.cache.dense import GROWTH, capacity
from tokenline.ops import Ops


def push(ops: Ops, cache: DenseCache, tags: list[list[int]]) -> np.ndarray:
    """Append tags [rows][T]; returns the tags of everything held, read from keys, checked against values."""
    keys = np.asarray(tags, np.float32)[:, None, :, None] * np.ones((1, 2, 1, 4), np.float32)
    held, values = cache.update(ops.array(keys), ops.array(-keys))
    held, values = ops.read([held, values])
    np.testing.assert_array_equal(values, -held)
    np.testing.assert_array_equal(held[:, 0], held[:, 1])
    return held[:, 0, :, 0].astype(int)


def filled(ops: Ops, tags: list[int]) -> DenseCache:
    cache = DenseCache(ops, 2, 4)
    push(ops, cache, [tags])
    return cache


def test_update_keeps_everything_through_growth(ops: Ops) -> None:
    cache = DenseCache(ops, 2, 4)
    tags = list(range(1, GROWTH + 41))
    push(ops, cache, [tags[:7]])
    push(ops, cache, [tags[7 : GROWTH - 1]])
    for tag in tags[GROWTH - 1 :]:
        held = push(ops, cache, [[tag]])
    assert held.tolist() == [tags]
    assert cache.length == len(tags)
    assert cache.nbytes == 2 * 2 * 4 * 4 * capacity(len(tags))


def test_capacity_is_a_function_of_the_length_alone(ops: Ops) -> None:
    grown, restored = DenseCache(ops, 2, 4), None
    for start in range(0, 600, 50):
        push(ops, grown, [list(range(start, start + 50))])
        restored = grown.copy()
        push(ops, restored, [[999]])
        assert restored.nbytes == 2 * 2 * 4 * 4 * capacity(start + 51)


def test_a_lone_row_has_no_padding_and_no_mask(ops: Ops) -> None:
    cache = filled(ops, [1, 2, 3])
    assert cache.mask(1) is None
    assert cache.mask(4) == "causal"
    assert cache.positions(2) == 3


def test_extend_aligns_to_the_right_and_masks_the_padding(ops: Ops) -> None:
    batch = filled(ops, [1, 2, 3, 4])
    batch.extend(filled(ops, [8, 9]))
    assert batch.padding == [0, 2]
    np.testing.assert_array_equal(batch.positions(1), [[4], [2]])
    seen = ops.read([batch.mask(1)])[0][:, 0, 0]
    assert seen.tolist() == [[True] * 5, [False, False, True, True, True]]
    held = push(ops, batch, [[5], [10]])
    assert held[0].tolist() == [1, 2, 3, 4, 5]
    assert held[1, 2:].tolist() == [8, 9, 10]


def test_a_longer_row_joins_a_shorter_batch(ops: Ops) -> None:
    batch = filled(ops, [1, 2])
    batch.extend(filled(ops, [5, 6, 7, 8, 9]))
    assert batch.padding == [3, 0]
    assert push(ops, batch, [[3], [10]])[0, 3:].tolist() == [1, 2, 3]


def test_filter_reorders_and_gives_padding_back(ops: Ops) -> None:
    batch = filled(ops, list(range(1, 301)))
    batch.extend(filled(ops, [8, 9]))
    batch.extend(filled(ops, [4, 5, 6]))
    batch.filter([2, 1])
    assert batch.padding == [0, 1]
    assert batch.length == 3
    held = push(ops, batch, [[7], [10]])
    assert held[0].tolist() == [4, 5, 6, 7]
    assert held[1, 1:].tolist() == [8, 9, 10]
    batch.filter([1])
    assert batch.mask(1) is None
    assert push(ops, batch, [[11]]).tolist() == [[8, 9, 10, 11]]


def test_extract_is_a_copy_without_padding(ops: Ops) -> None:
    batch = filled(ops, [1, 2, 3, 4])
    batch.extend(filled(ops, [8, 9]))
    row = batch.extract(1)
    push(ops, batch, [[5], [10]])
    assert row.length == 2
    assert push(ops, row, [[77]]).tolist() == [[8, 9, 77]]


def test_a_copy_of_a_batch_keeps_its_padding(ops: Ops) -> None:
    batch = filled(ops, [1, 2, 3])
    batch.extend(filled(ops, [9]))
    copied = batch.copy()
    push(ops, batch, [[4], [10]])
    assert copied.padding == [0, 2]
    assert push(ops, copied, [[5], [11]])[1, 2:].tolist() == [9, 11]


@pytest.mark.parametrize("count", [-1, 5])
def test_trim_refuses_what_it_cannot_remove_exactly_and_changes_nothing(ops: Ops, count: int) -> None:
    cache = filled(ops, [1, 2, 3, 4])
    assert cache.trim(count) is False
    assert push(ops, cache, [[5]]).tolist() == [[1, 2, 3, 4, 5]]


def test_trim_never_cuts_into_padding(ops: Ops) -> None:
    batch = filled(ops, [1, 2, 3, 4])
    batch.extend(filled(ops, [8, 9]))
    assert batch.trim(3) is False
    assert batch.trim(2) is True
    assert push(ops, batch, [[5], [6]])[0].tolist() == [1, 2, 5]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_rewind_equals_never_having_stepped(ops: Ops, count: int) -> None:
    cache = filled(ops, list(range(1, GROWTH)))
    untouched = cache.copy()
    for tag in range(count):
        push(ops, cache, [[900 + tag]])
    assert cache.rewind(count) is True
    assert push(ops, cache, [[5]]).tolist() == push(ops, untouched, [[5]]).tolist()
