"""The one place that cuts a prompt: known cuts, and the property that a hit runs what a cold run would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenline.decode.prefill_plan import Piece, PrefillPlan, reusable


@pytest.mark.parametrize(
    ("tokens", "ends", "expected"),
    [
        (1, [], [(0, 1)]),
        (2, [], [(0, 1), (1, 2)]),
        (4, [], [(0, 3), (3, 4)]),
        (5, [], [(0, 4), (4, 5)]),
        (10, [], [(0, 4), (4, 8), (8, 9), (9, 10)]),
        (10, [6], [(0, 4), (4, 6), (6, 8), (8, 9), (9, 10)]),
        (10, [0, 4, 9, 10, 12], [(0, 4), (4, 8), (8, 9), (9, 10)]),
    ],
)
def test_pieces_end_at_multiples_of_the_size_at_messages_and_before_the_last_token(
    tokens: int, ends: list[int], expected: list[tuple[int, int]]
) -> None:
    plan = PrefillPlan.of(tokens, ends, size=4)
    assert plan.pieces() == [Piece(*piece) for piece in expected]


def test_embedding_input_and_a_family_that_cannot_chunk_are_one_piece() -> None:
    assert PrefillPlan.of(1000, [10], size=4, embedding_input=True).pieces() == [Piece(0, 1000)]
    assert PrefillPlan.of(1000, [10], size=4, can_chunk=False).pieces() == [Piece(0, 1000)]
    assert PrefillPlan.of(1000, size=4, can_chunk=False).storable == 0


def test_an_empty_prompt_has_no_plan() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        PrefillPlan.of(0)


@pytest.mark.parametrize("tokens", [1, 3, 10, -4])
def test_a_hit_that_is_no_split_point_or_covers_everything_is_refused(tokens: int) -> None:
    with pytest.raises(ValueError, match="split point"):
        PrefillPlan.of(10, size=4).after_hit(tokens)


def test_what_is_reusable_by_hand() -> None:
    plan = PrefillPlan.of(20, [6], size=8)  # 6 8 16 19 20
    assert reusable(plan, (6, 8, 16, 19, 20), 20) == 19  # the same prompt again: all but its last token
    assert reusable(plan, (6, 8, 16, 19, 20), 18) == 16  # differs at token 18
    assert reusable(plan, (6, 8, 11, 12), 11) == 8  # a shorter prompt was cut at 11, this one is not
    assert reusable(plan, (8, 16, 19, 20), 20) == 0  # the same tokens without the message end: other forwards
    assert reusable(plan, (6, 8, 16, 24, 30), 20) == 16


prompts = st.integers(1, 300)
ends = st.lists(st.integers(0, 300), max_size=6)


@given(prompts, ends, prompts, ends, st.integers(0, 300), st.integers(1, 64))
def test_a_hit_runs_exactly_the_forwards_of_the_cold_run(
    tokens: int, mine: list[int], stored_tokens: int, theirs: list[int], shared: int, size: int
) -> None:
    plan = PrefillPlan.of(tokens, mine, size=size)
    stored = PrefillPlan.of(stored_tokens, theirs, size=size)
    shared = min(shared, stored.storable, tokens)
    adopted = reusable(plan, stored.split_points, shared)
    cold = [piece for piece in plan.pieces() if piece.start >= adopted]
    assert plan.after_hit(adopted).pieces() == cold
    assert cold[-1].stop == tokens
    before = [p for p in plan.split_points if p <= adopted]
    assert before == [p for p in stored.split_points if p <= adopted]
