"""A state that is put together from its segments is the state: for every kind of layer cache, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tokenline.cache import AttentionCache, DenseCache, LatentCache, PairCache, RecurrentCache, WindowCache
from tokenline.ops import Ops

SPLITS = (0, 5, 300, 301, 640)


def tagged(ops: Ops, start: int, stop: int, heads: int, size: int) -> Any:
    """[1, heads, T, size]: every entry of a token is its number."""
    tags = np.arange(start, stop, dtype=np.float32)[None, None, :, None]
    return ops.array(tags * np.ones((1, heads, 1, size), np.float32))


KINDS: dict[str, tuple[Callable[[Ops], Any], tuple[tuple[int, int], ...]]] = {
    "dense": (lambda ops: DenseCache(ops, 2, 4), ((2, 4), (2, 4))),
    "keys and values of unequal size": (lambda ops: DenseCache(ops, 2, 4, 6), ((2, 4), (2, 6))),
    "latent": (lambda ops: LatentCache(ops, 5), ((1, 5),)),
    "window": (lambda ops: WindowCache(ops, 40, 2, 4), ((2, 4), (2, 4))),
    "window longer than a piece": (lambda ops: WindowCache(ops, 310, 2, 4), ((2, 4), (2, 4))),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pieces", [2, 3, 4])
def test_segments_put_together_are_the_state(ops: Ops, kind: str, pieces: int) -> None:
    make, shapes = KINDS[kind]
    cache = make(ops)
    segments = []
    for start, stop in list(pairwise(SPLITS))[:pieces]:
        cache.update(*(tagged(ops, start, stop, *shape) for shape in shapes))
        segments.append(cache.segment(start))
    together = segments[-1].after(segments[:-1])
    assert together.length == cache.length == SPLITS[pieces]
    stop = cache.length
    for step in range(stop, stop + 3):
        ours, theirs = (
            each.update(*(tagged(ops, step, step + 1, *shape) for shape in shapes))
            for each in (together, cache)
        )
        for left, right in zip(ops.read(list(ours)), ops.read(list(theirs)), strict=True):
            assert np.array_equal(left, right)
            assert left.strides == right.strides
            assert left[0, 0, -1, 0] == step
    assert together.nbytes == cache.nbytes


def test_segments_share_nothing_with_the_state_and_hold_no_more_than_their_tokens(ops: Ops) -> None:
    cache = DenseCache(ops, 2, 4)
    cache.update(tagged(ops, 0, 10, 2, 4), tagged(ops, 0, 10, 2, 4))
    first = cache.segment(0)
    cache.update(tagged(ops, 10, 13, 2, 4), tagged(ops, 10, 13, 2, 4))
    second = cache.segment(10)
    assert (first.nbytes, second.nbytes) == (2 * 2 * 4 * 4 * 10, 2 * 2 * 4 * 4 * 3)
    together = second.after([first])
    together.update(tagged(ops, 90, 91, 2, 4), tagged(ops, 90, 91, 2, 4))
    held = ops.read([cache.update(tagged(ops, 13, 14, 2, 4), tagged(ops, 13, 14, 2, 4))[0]])[0]
    assert held[0, 0, :, 0].tolist() == list(range(14))
    again = ops.read([second.after([first]).update(tagged(ops, 13, 14, 2, 4), tagged(ops, 13, 14, 2, 4))[0]])[
        0
    ]
    assert np.array_equal(again, held)


def state(ops: Ops, *rows: float) -> Any:
    return ops.array(np.asarray(rows, np.float32)[:, None] * np.ones((1, 3), np.float32))


def read(ops: Ops, cache: RecurrentCache) -> list[float]:
    assert cache.arrays is not None
    return ops.read([cache.arrays[0]])[0][:, 0].tolist()


def test_a_recurrent_state_is_kept_whole(ops: Ops) -> None:
    cache = RecurrentCache(ops)
    cache.update(5, state(ops, 1))
    early = cache.segment(0)
    cache.update(3, state(ops, 2))
    late = cache.segment(5)
    cache.update(1, state(ops, 3))
    assert (early.length, late.length, cache.length) == (5, 8, 9)
    together = late.after([early])
    assert (together.length, read(ops, together)) == (8, [2.0])
    assert (read(ops, early), read(ops, cache)) == ([1.0], [3.0])


def test_a_recurrent_state_goes_back_exactly_or_not_at_all(ops: Ops) -> None:
    cache = RecurrentCache(ops, undo=2)
    for length in range(1, 6):
        cache.update(1, state(ops, length))
    assert not cache.rewind(3)
    assert not cache.trim(3)
    assert (cache.length, read(ops, cache)) == (5, [5.0])
    assert cache.rewind(0)
    assert cache.rewind(1)
    assert (cache.length, read(ops, cache)) == (4, [4.0])
    assert not cache.rewind(2)  # only one step is left to undo
    assert cache.rewind(1)
    assert (cache.length, read(ops, cache)) == (3, [3.0])
    cache.update(4, state(ops, 9))
    assert not cache.rewind(2)  # in the middle of a piece there is no state
    assert cache.rewind(4)
    assert read(ops, cache) == [3.0]


def test_a_recurrent_batch_joins_leaves_and_counts_its_bytes(ops: Ops) -> None:
    cache, joiner = RecurrentCache(ops), RecurrentCache(ops)
    cache.update(5, state(ops, 1))
    joiner.update(9, state(ops, 2))
    cache.extend(joiner)
    assert (cache.length, cache.rows, read(ops, cache)) == (9, 2, [1.0, 2.0])
    assert cache.nbytes == 2 * 3 * 4
    assert not cache.rewind(1)  # a row that joined has no common past
    cache.update(1, state(ops, 3, 4))
    assert cache.nbytes == 2 * 2 * 3 * 4
    left = cache.extract(1)
    assert (left.rows, read(ops, left)) == (1, [4.0])
    cache.filter([1])
    assert (cache.rows, read(ops, cache)) == (1, [4.0])
    with pytest.raises(ValueError, match="no rows"):
        RecurrentCache(ops).extend(joiner)


def stepped(ops: Ops, attention: AttentionCache, *stops: int) -> PairCache:
    """Both memories after pieces that end there; each says the number of its last token."""
    pair = PairCache(attention, RecurrentCache(ops))
    step(ops, pair, *stops)
    return pair


def step(ops: Ops, pair: PairCache, *stops: int) -> None:
    for stop in stops:
        start = pair.length
        pair.attention.update(*[tagged(ops, start, stop, 2, 4)] * 2)
        pair.recurrent.update(stop - start, ops.array(np.full((1, 3), stop - 1, np.float32)))


def ends(ops: Ops, pair: PairCache) -> tuple[int, int, float]:
    """Tokens that either memory holds, and the number of the last one that the recurrent one has seen."""
    [state] = ops.read(list(pair.recurrent.arrays or ()))
    return pair.attention.length, pair.recurrent.length, float(state[-1, 0])


def test_both_memories_of_a_pair_go_back_or_neither(ops: Ops) -> None:
    pair = stepped(ops, DenseCache(ops, 2, 4), 5, 9, 10)
    assert not pair.rewind(3)  # the state after 7 was never there
    assert not pair.trim(10)  # nor kept so long
    assert ends(ops, pair) == (10, 10, 9.0)
    assert pair.rewind(5)
    assert ends(ops, pair) == (5, 5, 4.0)
    # Here the state is there, and the window's first tokens are not.
    pair = stepped(ops, WindowCache(ops, 40, 2, 4), 300, 700)
    assert not pair.rewind(400)
    assert ends(ops, pair) == (700, 700, 699.0)


def test_rows_of_a_pair_join_leave_and_are_put_together_side_by_side(ops: Ops) -> None:
    pair = stepped(ops, DenseCache(ops, 2, 4), 5)
    first = pair.segment(0)
    step(ops, pair, 8)
    whole = pair.segment(5).after([first])
    assert ends(ops, whole) == ends(ops, pair) == (8, 8, 7.0)
    shared = pair.copy()
    pair.extend(stepped(ops, DenseCache(ops, 2, 4), 3))
    assert (pair.rows, pair.length, shared.rows) == (2, 8, 1)
    assert pair.nbytes == pair.attention.nbytes + pair.recurrent.nbytes
    assert ends(ops, pair.extract(1))[::2] == (3, 2.0)
    pair.filter([1])
    assert (pair.rows, pair.attention.length) == (1, 3)
    assert ends(ops, pair)[2] == 2.0
    assert ends(ops, shared) == (8, 8, 7.0)
