"""The one place that cuts a prompt: known cuts, and the property that a hit runs what a cold run would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenline.decode.prefill_plan import Piece, PrefillPlan
from tokenline.prompt_cache import PromptCache, Trail


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
    assert PrefillPlan.of(1000, size=4, can_chunk=False).storable_pieces() == []


def test_an_empty_prompt_has_no_plan() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        PrefillPlan.of(0)


@pytest.mark.parametrize("tokens", [1, 3, 10, -4])
def test_a_hit_that_is_no_split_point_or_covers_everything_is_refused(tokens: int) -> None:
    with pytest.raises(ValueError, match="split point"):
        PrefillPlan.of(10, size=4).after_hit(tokens)


@dataclass
class Counted:
    """A layer that counts its tokens, in place of a cache."""

    length: int
    nbytes: int = 8

    def segment(self, start: int) -> Self:
        return type(self)(self.length - start)

    def after(self, earlier: list[Self]) -> Self:
        return type(self)(sum(each.length for each in (*earlier, self)))


def adopted(plan: PrefillPlan, prompt: list[int], stored: list[tuple[PrefillPlan, list[int]]]) -> int:
    """How much a prompt reuses of what others left, by the prompt cache itself."""
    cache = PromptCache(1 << 30)
    for other, tokens in stored:
        for piece in other.storable_pieces():
            cache.store(Trail.of("", tokens, other), piece, [Counted(piece.stop)], 0)
    count, caches = cache.adopt(Trail.of("", prompt, plan))
    assert [each.length for each in caches] == ([count] if count else [])
    return count


def test_what_is_reusable_by_hand() -> None:
    prompt = list(range(100, 130))
    plan = PrefillPlan.of(20, [6], size=8)  # 6 8 16 19 20
    other = [*prompt[:18], *range(18, 30)]

    def reused(tokens: int, ends: list[int], stored: list[int]) -> int:
        stored_plan = PrefillPlan.of(tokens, ends, size=8)
        return adopted(plan, prompt[:20], [(stored_plan, stored[:tokens])])

    assert reused(20, [6], prompt) == 19  # the same prompt again: all but its last token
    assert reused(20, [6], other) == 16  # differs at token 18
    assert reused(12, [6], prompt) == 8  # a shorter prompt was cut at 11, this one is not
    assert reused(20, [], prompt) == 0  # the same tokens without the message end: other forwards
    assert reused(30, [6], prompt) == 16
    assert reused(30, [6], prompt[::-1]) == 0


prompts = st.integers(1, 300)
ends = st.lists(st.integers(0, 300), max_size=6)


@given(prompts, ends, prompts, ends, st.integers(0, 300), st.integers(1, 64))
def test_a_hit_runs_exactly_the_forwards_of_the_cold_run(
    tokens: int, mine: list[int], stored_tokens: int, theirs: list[int], shared: int, size: int
) -> None:
    plan = PrefillPlan.of(tokens, mine, size=size)
    stored = PrefillPlan.of(stored_tokens, theirs, size=size)
    prompt = list(range(tokens))
    kept = [token if index < shared else -1 for index, token in enumerate(range(stored_tokens))]
    count = adopted(plan, prompt, [(stored, kept)])
    cold = [piece for piece in plan.pieces() if piece.start >= count]
    assert plan.after_hit(count).pieces() == cold
    assert cold[-1].stop == tokens
    assert count <= min(shared, stored_tokens - 1)
    before = [p for p in plan.split_points if p <= count]
    assert before == [p for p in stored.split_points if p <= count]
    # Nothing that could have been adopted was left: the next pieces differ in their cut or in their tokens.
    if len(cold) > 1 and cold[0] in stored.storable_pieces():
        assert kept[cold[0].start : cold[0].stop] != prompt[cold[0].start : cold[0].stop]
