"""The contract that window and chunked cache share, without a model: every token's key carries the token as a tag.

What a query sees is what the mask leaves of what `update` returns; what it must see is written down as a plain list.
"""

from __future__ import annotations

import numpy as np
import pytest
from forgetful import CHUNKED, WINDOW, Kind
from tagged_keys import HEADS, SIZE, numbers, push

from tokenline.cache import WindowCache
from tokenline.cache.dense import GROWTH, capacity
from tokenline.cache.window import UNDO
from tokenline.ops import Ops


@pytest.fixture(params=[WINDOW, CHUNKED], ids=["window", "chunked"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.mark.parametrize("size", [1, 5, 48, 300])
@pytest.mark.parametrize("piece", [1, 7, 64, 400])
def test_every_query_sees_its_own_whatever_the_pieces(ops: Ops, kind: Kind, size: int, piece: int) -> None:
    """700 tokens: the layout slides twice. Pieces shorter and longer than the size and than a step of growth, that end
    inside chunks and on their boundaries."""
    tags = numbers(700)
    cache, seen = kind.empty(ops, size), []
    for start in range(0, len(tags), piece):
        [row] = push(ops, cache, [tags[start : start + piece]])
        seen += row
    assert seen == kind.must_see(tags, size)
    assert cache.length == 700


@pytest.mark.parametrize("size", [5, 48, 300])
def test_it_forgets(ops: Ops, kind: Kind, size: int) -> None:
    """However long the text, no more is held than the size, what can be undone and one step of growth."""
    cache = kind.filled(ops, size, numbers(3000), piece=100)
    assert cache.nbytes <= 2 * HEADS * SIZE * 4 * capacity(size + UNDO + GROWTH)


def test_where_it_lies_depends_on_the_length_alone(ops: Ops, kind: Kind) -> None:
    grown = kind.empty(ops, 48)
    for start in range(0, 1000, 50):
        push(ops, grown, [numbers(50, start)])
        at_once, copied = kind.filled(ops, 48, numbers(start + 50, 0)), grown.copy()
        assert grown.nbytes == at_once.nbytes
        push(ops, at_once, [[999]])
        push(ops, copied, [[999]])
        assert copied.nbytes == at_once.nbytes


@pytest.mark.parametrize("length", [20, 48, 49, 255, 256, 335, 600])
@pytest.mark.parametrize("count", [1, 2, UNDO])
def test_rewind_equals_never_having_stepped(ops: Ops, kind: Kind, length: int, count: int) -> None:
    """The layout of a size of 48 slides at 335 tokens and at 591; 48 and 49 tokens are rewound to the last and the
    first place of a chunk, 600 across the boundary at 624."""
    cache = kind.filled(ops, 48, numbers(length - 5))
    push(ops, cache, [numbers(5, length - 4)])
    untouched = cache.copy()
    for tag in range(count):
        push(ops, cache, [[900 + tag]])
    assert cache.rewind(count) is True
    assert cache.length == length
    for tags in ([5000], numbers(60, 6000)):
        assert push(ops, cache, [tags]) == push(ops, untouched, [tags])


@pytest.mark.parametrize("count", [-1, 300, 400, 999])
def test_a_trim_that_cannot_be_exact_is_refused_and_changes_nothing(ops: Ops, kind: Kind, count: int) -> None:
    tags = numbers(600)
    cache = kind.filled(ops, 48, tags)
    held = cache.nbytes
    assert cache.trim(count) is False
    assert cache.rewind(count) is False
    assert (cache.length, cache.nbytes) == (600, held)
    assert push(ops, cache, [[999]])[0] == kind.must_see([*tags, 999], 48)[-1:]


def test_what_a_trim_leaves_is_exact_or_it_is_refused(ops: Ops, kind: Kind) -> None:
    tags = numbers(700)
    counts = sorted({*range(0, 700, 7), *range(0, 700, 13)})
    answers = []
    for count in counts:
        cache = kind.filled(ops, 48, tags, piece=90)
        answers.append(cache.trim(count))
        kept = tags[: 700 - count] if answers[-1] else tags
        assert push(ops, cache, [[999]])[0] == kind.must_see([*kept, 999], 48)[-1:]
    promised = sum(count <= UNDO for count in counts)
    assert answers[:promised] == [True] * promised
    assert not answers[-1]


def test_a_state_before_it_forgot_can_be_cut_anywhere(ops: Ops, kind: Kind) -> None:
    cache = kind.filled(ops, 48, numbers(200))
    assert cache.trim(190) is True
    assert push(ops, cache, [[999]])[0] == [[*numbers(10), 999]]


@pytest.mark.parametrize("size", [1, 6, 48, 300])
@pytest.mark.parametrize(
    "lengths", [(3, 9), (9, 3), (40, 400), (400, 40), (700, 2), (2, 700), (300, 310), (256, 512)]
)
def test_rows_of_unequal_length_see_their_own(
    ops: Ops, kind: Kind, size: int, lengths: tuple[int, int]
) -> None:
    """Rows take as many steps as bring every one of them over a boundary of a small chunk."""
    rows = [numbers(lengths[0]), numbers(lengths[1], 10_000)]
    batch = kind.batch(ops, size, rows)
    longest = max(lengths)
    assert batch.length == longest
    assert batch.padding == [longest - lengths[0], longest - lengths[1]]
    positions = batch.positions(1)
    np.testing.assert_array_equal(np.broadcast_to(positions, (2, 1)), [[lengths[0]], [lengths[1]]])
    for index in range(max(3, size) if size < 50 else 3):
        kind.step(ops, batch, size, rows, [[20_000 + index], [30_000 + index]])
    kind.step(ops, batch, size, rows, [numbers(60, 40_000), numbers(60, 50_000)])
    third = numbers(90, 60_000)
    batch.extend(kind.filled(ops, size, third, piece=40))
    rows.append(third)
    kind.step(ops, batch, size, rows, [[1], [2], [3]])


@pytest.mark.parametrize("size", [6, 48, 300])
def test_filter_reorders_and_gives_padding_back(ops: Ops, kind: Kind, size: int) -> None:
    rows = [numbers(700), numbers(20, 10_000), numbers(330, 20_000)]
    batch = kind.batch(ops, size, rows)
    kind.step(ops, batch, size, rows, [[1], [2], [3]])
    batch.filter([2, 1])
    rows = [rows[2], rows[1]]
    assert (batch.length, batch.padding) == (331, [0, 310])
    kind.step(ops, batch, size, rows, [[4], [5]])
    batch.filter([1])
    assert (batch.length, batch.padding) == (22, [0])
    assert batch.mask(1) is None
    kind.step(ops, batch, size, rows[1:], [[6]])


@pytest.mark.parametrize("size", [6, 48, 300])
@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize(("lengths", "before"), [((600, 25, 400), 0), ((700, 20, 330), 1)])
def test_an_extracted_row_goes_on_as_it_would_have(
    ops: Ops, kind: Kind, size: int, row: int, lengths: tuple[int, ...], before: int
) -> None:
    """Taken out as the rows were put together, and after a step of them all."""
    rows = [numbers(length, 1 + 10_000 * index) for index, length in enumerate(lengths)]
    batch = kind.batch(ops, size, rows)
    for _ in range(before):
        kind.step(ops, batch, size, rows, [[1], [2], [3]])
    alone, mine = batch.extract(row), list(rows[row])
    assert (alone.length, alone.padding, alone.window) == (len(mine), [0], size)
    kind.step(ops, batch, size, rows, [[4], [5], [6]])
    for index in range(300):
        kind.step(ops, alone, size, [mine], [[40_000 + index]])


@pytest.mark.parametrize("size", [6, 48, 300])
@pytest.mark.parametrize(("lengths", "before"), [((400, 30), 0), ((700, 20, 330), 1)])
def test_a_copy_shares_nothing_and_keeps_padding(
    ops: Ops, kind: Kind, size: int, lengths: tuple[int, ...], before: int
) -> None:
    rows = [numbers(length, 1 + 10_000 * index) for index, length in enumerate(lengths)]
    batch = kind.batch(ops, size, rows)
    for _ in range(before):
        kind.step(ops, batch, size, rows, [[1 + index] for index in range(len(rows))])
    copied, also = batch.copy(), [list(row) for row in rows]
    kind.step(ops, batch, size, rows, [[4 + index] for index in range(len(rows))])
    kind.step(ops, copied, size, also, [[7 + index] for index in range(len(rows))])
    assert batch.padding == copied.padding == [max(lengths) - length for length in lengths]


def exact_or_refused(ops: Ops, kind: Kind, cache: WindowCache, rows: list[list[int]]) -> list[bool]:
    """Trims copies by ever more tokens: each either leaves every row what it sees, or is refused."""
    answers = []
    for count in range(0, 400, 3):
        trimmed, kept = cache.copy(), [list(row) for row in rows]
        answers.append(trimmed.trim(count))
        if answers[-1]:
            kept = [row[: len(row) - count] for row in rows]
        assert trimmed.length == cache.length - (count if answers[-1] else 0)
        kind.step(ops, trimmed, 48, kept, [[70_000 + row] for row in range(len(rows))])
    return answers


def test_a_batch_is_trimmed_no_further_than_every_row_was_kept(ops: Ops, kind: Kind) -> None:
    """Rows that had forgotten as much of themselves lie shifted in a batch: the shortest one's first token is last."""
    rows = [numbers(700), numbers(620, 10_000), numbers(650, 20_000)]
    batch = kind.batch(ops, 48, rows)
    answers = exact_or_refused(ops, kind, batch, rows)
    assert answers[: UNDO // 3 + 1] == [True] * (UNDO // 3 + 1)
    assert not answers[-1]
    batch.filter([1, 2])
    assert not exact_or_refused(ops, kind, batch, rows[1:])[-1]
    for row in (0, 1):
        assert not exact_or_refused(ops, kind, batch.extract(row), rows[1 + row : 2 + row])[-1]


def test_a_segment_is_the_whole_state(ops: Ops, kind: Kind) -> None:
    """What the prompt cache stores of the last piece is all that the row goes on from."""
    tags = numbers(500)
    part = kind.filled(ops, 48, tags[:256]).segment(0)
    whole = kind.filled(ops, 48, tags, piece=256)
    again = whole.segment(256).after([part])
    assert (again.length, again.rows) == (500, 1)
    for tag in range(60):
        assert push(ops, again, [[900 + tag]]) == push(ops, whole, [[900 + tag]])


def test_every_size_and_each_of_the_two_are_kinds_of_their_own(ops: Ops) -> None:
    """Layers share a mask by the kind of their caches."""
    for kind in (WINDOW, CHUNKED):
        assert kind.empty(ops, 4).kind == kind.empty(ops, 4).kind
        assert kind.empty(ops, 4).kind != kind.empty(ops, 5).kind
    assert WINDOW.empty(ops, 4).kind != CHUNKED.empty(ops, 4).kind
