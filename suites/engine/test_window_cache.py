"""The whole contract of the window cache, without a model: every token's key carries the token as a tag.

What a query sees is what the mask leaves of what `update` returns; what it must see is written down as a plain list.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tagged_keys import HEADS, SIZE, keys_of, numbers, push

from tokenline.cache import WindowCache
from tokenline.cache.dense import GROWTH, capacity
from tokenline.cache.window import UNDO
from tokenline.ops import Ops, open_ops


def filled(ops: Ops, window: int, tags: list[int], piece: int = 10_000) -> WindowCache:
    cache = WindowCache(ops, window, HEADS, SIZE)
    for start in range(0, len(tags), piece):
        push(ops, cache, [tags[start : start + piece]])
    return cache


def must_see(tags: Sequence[int], window: int, first: int = 0) -> list[list[int]]:
    """Of each token from the first on: itself and the `window - 1` before it."""
    return [list(tags[max(0, index - window + 1) : index + 1]) for index in range(first, len(tags))]


@pytest.mark.parametrize("window", [1, 5, 48, 300])
@pytest.mark.parametrize("piece", [1, 7, 64, 400])
def test_every_query_sees_its_window_whatever_the_pieces(ops: Ops, window: int, piece: int) -> None:
    """700 tokens: the layout slides twice. Pieces shorter and longer than the window and than a step of growth."""
    tags = numbers(700)
    cache, seen = WindowCache(ops, window, HEADS, SIZE), []
    for start in range(0, len(tags), piece):
        [row] = push(ops, cache, [tags[start : start + piece]])
        seen += row
    assert seen == must_see(tags, window)
    assert cache.length == 700


@pytest.mark.parametrize("window", [5, 48, 300])
def test_it_forgets(ops: Ops, window: int) -> None:
    """However long the text, no more is held than the window, what can be undone and one step of growth."""
    cache = filled(ops, window, numbers(3000), piece=100)
    assert cache.nbytes <= 2 * HEADS * SIZE * 4 * capacity(window + UNDO + GROWTH)


def test_where_it_lies_depends_on_the_length_alone(ops: Ops) -> None:
    grown = WindowCache(ops, 48, HEADS, SIZE)
    for start in range(0, 1000, 50):
        push(ops, grown, [numbers(50, start)])
        at_once, copied = filled(ops, 48, numbers(start + 50, 0)), grown.copy()
        assert grown.nbytes == at_once.nbytes
        push(ops, at_once, [[999]])
        push(ops, copied, [[999]])
        assert copied.nbytes == at_once.nbytes


def test_a_lone_row_is_masked_only_where_the_window_cuts(ops: Ops) -> None:
    cache = filled(ops, 5, [1, 2, 3])
    assert cache.mask(1) is None
    assert cache.mask(2) == "causal"
    assert not isinstance(cache.mask(3), str)
    push(ops, cache, [numbers(400)])
    assert cache.mask(1) is None
    assert cache.positions(2) == 403


@pytest.mark.parametrize("length", [20, 255, 256, 335, 600])
@pytest.mark.parametrize("count", [1, 2, UNDO])
def test_rewind_equals_never_having_stepped(ops: Ops, length: int, count: int) -> None:
    """The layout of a window of 48 slides at 335 tokens and at 591."""
    cache = filled(ops, 48, numbers(length - 5))
    push(ops, cache, [numbers(5, length - 4)])
    untouched = cache.copy()
    for tag in range(count):
        push(ops, cache, [[900 + tag]])
    assert cache.rewind(count) is True
    assert cache.length == length
    for tags in ([5000], numbers(60, 6000)):
        assert push(ops, cache, [tags]) == push(ops, untouched, [tags])


def test_the_layout_slides_while_decoding_and_is_rewound_across(ops: Ops) -> None:
    tags = numbers(335)
    cache = filled(ops, 48, tags[:-1])
    before = cache.nbytes
    push(ops, cache, [tags[-1:]])
    assert cache.nbytes < before, "it slid at this token: another length would make this test empty"
    assert cache.rewind(1) is True
    assert push(ops, cache, [[999]])[0] == must_see([*tags[:-1], 999], 48)[-1:]


@pytest.mark.parametrize("count", [-1, 300, 999])
def test_a_trim_that_cannot_be_exact_is_refused_and_changes_nothing(ops: Ops, count: int) -> None:
    tags = numbers(600)
    cache = filled(ops, 48, tags)
    held = cache.nbytes
    assert cache.trim(count) is False
    assert cache.rewind(count) is False
    assert (cache.length, cache.nbytes) == (600, held)
    assert push(ops, cache, [[999]])[0] == must_see([*tags, 999], 48)[-1:]


def test_what_a_trim_leaves_is_exact_or_it_is_refused(ops: Ops) -> None:
    tags = numbers(700)
    answers = []
    for count in range(0, 700, 13):
        cache = filled(ops, 48, tags, piece=90)
        answers.append(cache.trim(count))
        kept = tags[: 700 - count] if answers[-1] else tags
        assert push(ops, cache, [[999]])[0] == must_see([*kept, 999], 48)[-1:]
    assert answers[:3] == [True, True, True]  # up to 26 tokens, which `UNDO` promises
    assert not answers[-1]


def test_a_state_before_the_window_filled_can_be_cut_anywhere(ops: Ops) -> None:
    cache = filled(ops, 48, numbers(200))
    assert cache.trim(190) is True
    assert push(ops, cache, [[999]])[0] == [[*numbers(10), 999]]


def step(ops: Ops, cache: WindowCache, rows: list[list[int]], window: int, tags: list[list[int]]) -> None:
    """Appends to the batch and to the plain rows; every row must see its own window and nothing else."""
    seen = push(ops, cache, tags)
    for row, more, saw in zip(rows, tags, seen, strict=True):
        row += more
        assert saw == must_see(row, window, len(row) - len(more))


@pytest.mark.parametrize("window", [1, 6, 48, 300])
@pytest.mark.parametrize(
    "lengths", [(3, 9), (9, 3), (40, 400), (400, 40), (700, 2), (2, 700), (300, 310), (256, 512)]
)
def test_rows_of_unequal_length_see_their_own_windows(
    ops: Ops, window: int, lengths: tuple[int, int]
) -> None:
    rows = [numbers(lengths[0]), numbers(lengths[1], 10_000)]
    batch = filled(ops, window, rows[0])
    batch.extend(filled(ops, window, rows[1]))
    longest = max(lengths)
    assert batch.length == longest
    assert batch.padding == [longest - lengths[0], longest - lengths[1]]
    positions = batch.positions(1)
    np.testing.assert_array_equal(np.broadcast_to(positions, (2, 1)), [[lengths[0]], [lengths[1]]])
    for index in range(3):
        step(ops, batch, rows, window, [[20_000 + index], [30_000 + index]])
    step(ops, batch, rows, window, [numbers(60, 40_000), numbers(60, 50_000)])
    third = numbers(90, 60_000)
    batch.extend(filled(ops, window, third, piece=40))
    rows.append(third)
    step(ops, batch, rows, window, [[1], [2], [3]])


@pytest.mark.parametrize("window", [6, 48, 300])
def test_filter_reorders_and_gives_padding_back(ops: Ops, window: int) -> None:
    rows = [numbers(700), numbers(20, 10_000), numbers(330, 20_000)]
    batch = filled(ops, window, rows[0])
    for row in rows[1:]:
        batch.extend(filled(ops, window, row))
    step(ops, batch, rows, window, [[1], [2], [3]])
    batch.filter([2, 1])
    rows = [rows[2], rows[1]]
    assert (batch.length, batch.padding) == (331, [0, 310])
    step(ops, batch, rows, window, [[4], [5]])
    batch.filter([1])
    assert (batch.length, batch.padding) == (22, [0])
    assert batch.mask(1) is None
    step(ops, batch, rows[1:], window, [[6]])


@pytest.mark.parametrize("window", [6, 48, 300])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_an_extracted_row_goes_on_as_it_would_have(ops: Ops, window: int, row: int) -> None:
    rows = [numbers(600), numbers(25, 10_000), numbers(400, 20_000)]
    batch = filled(ops, window, rows[0])
    for other in rows[1:]:
        batch.extend(filled(ops, window, other))
    alone = batch.extract(row)
    assert (alone.length, alone.padding, alone.window) == (len(rows[row]), [0], window)
    step(ops, batch, rows, window, [[1], [2], [3]])
    mine = rows[row][:-1]
    for index in range(300):
        step(ops, alone, [mine], window, [[40_000 + index]])


def exact_or_refused(ops: Ops, cache: WindowCache, rows: list[list[int]]) -> list[bool]:
    """Trims copies by ever more tokens: each either leaves every row its window, or is refused."""
    answers = []
    for count in range(0, 160, 3):
        trimmed, kept = cache.copy(), [list(row) for row in rows]
        answers.append(trimmed.trim(count))
        if answers[-1]:
            kept = [row[: len(row) - count] for row in rows]
        assert trimmed.length == cache.length - (count if answers[-1] else 0)
        step(ops, trimmed, kept, 48, [[70_000 + row] for row in range(len(rows))])
    return answers


def test_a_batch_is_trimmed_no_further_than_every_row_was_kept(ops: Ops) -> None:
    """Rows that had forgotten as much of themselves lie shifted in a batch: the shortest one's first token is last."""
    rows = [numbers(700), numbers(620, 10_000), numbers(650, 20_000)]
    batch = filled(ops, 48, rows[0])
    for row in rows[1:]:
        batch.extend(filled(ops, 48, row))
    answers = exact_or_refused(ops, batch, rows)
    assert answers[: UNDO // 3 + 1] == [True] * (UNDO // 3 + 1)
    assert not answers[-1]
    batch.filter([1, 2])
    assert not exact_or_refused(ops, batch, rows[1:])[-1]
    for row in (0, 1):
        assert not exact_or_refused(ops, batch.extract(row), rows[1 + row : 2 + row])[-1]


def test_a_copy_shares_nothing_and_keeps_padding(ops: Ops) -> None:
    rows = [numbers(400), numbers(30, 10_000)]
    batch = filled(ops, 48, rows[0])
    batch.extend(filled(ops, 48, rows[1]))
    copied, also = batch.copy(), [list(row) for row in rows]
    step(ops, batch, rows, 48, [[1], [2]])
    step(ops, copied, also, 48, [[3], [4]])
    assert batch.padding == copied.padding == [0, 370]


def test_two_windows_are_two_kinds(ops: Ops) -> None:
    """Layers share a mask by the kind of their caches."""
    assert WindowCache(ops, 4, 1, 1).kind == WindowCache(ops, 4, 1, 1).kind
    assert WindowCache(ops, 4, 1, 1).kind != WindowCache(ops, 5, 1, 1).kind


@pytest.mark.parametrize("window", [8, 48, 300])
@pytest.mark.parametrize("pieces", [[1] * 90, [30, 1, 1, 60, 1], [400, 1, 1, 1], [256, 256, 100, 1, 1]])
def test_the_same_tokens_are_seen_as_in_mlx_lms_rotating_cache(window: int, pieces: list[int]) -> None:
    from tokenline.ops.mlx import mx
    from mlx_lm.models.cache import RotatingKVCache  # isort: skip

    ops = open_ops("mlx", "float32", 1)
    cache, theirs = WindowCache(ops, window, HEADS, SIZE), RotatingKVCache(max_size=window)
    at = 1
    for size in pieces:
        tags = numbers(size, at)
        at += size
        mask = theirs.make_mask(size, window_size=window)
        held = np.array(theirs.update_and_fetch(mx.array(keys_of([tags])), mx.array(keys_of([tags])))[0])
        held = held[0, 0, :, 0].astype(int)
        if mask is None:
            mask = np.ones((size, len(held)), bool)
        elif isinstance(mask, str):
            mask = np.tril(np.ones((size, len(held)), bool), len(held) - size)
        seen = [sorted(held[row].tolist()) for row in np.array(mask).reshape(size, len(held))]
        assert push(ops, cache, [tags])[0] == seen
