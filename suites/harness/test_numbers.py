"""Envelopes, near-ties, histories and arrivals over arithmetic done by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from paritygate.case import Sampler
from paritygate.compare.arrivals import spread_of
from paritygate.compare.envelope import distance
from paritygate.compare.history import follow, penalised
from paritygate.compare.reuse import given_up, reused, too_far
from paritygate.compare.ties import Reanchored, forks_of
from paritygate.gates.envelope import judge
from paritygate.policy import Envelope
from paritygate.stream import Stream, Usage
from paritygate.verdict import Verdict

Make = Callable[..., Stream]
ENVELOPE = Envelope(kl_mean=0.1, kl_max=0.2, max_abs_logit=1.0, reason="by hand")


def test_kl_of_a_coin() -> None:
    # P = (1/2, 1/2), Q = (3/4, 1/4): KL = ln(4/3) / 2.
    found = distance(np.array([[0.0, 0.0], [1.0, 2.0]]) + 5, np.array([[math.log(3), 0.0], [1.0, 2.0]]) + 5)
    assert found.kl_max == pytest.approx(math.log(4 / 3) / 2)
    assert found.kl_mean == pytest.approx(math.log(4 / 3) / 4)
    assert (found.kl_max_at, found.positions, found.argmax_changes) == (0, 2, 0)
    assert found.max_abs_logit == pytest.approx(math.log(3))
    assert judge(found, ENVELOPE).verdict is Verdict.DIVERGED
    assert "|Δlogit| 1.1 at position 0 is above 1" in judge(found, ENVELOPE).headline


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (np.zeros((2, 3)), "cannot be compared"),
        (np.array([[1.0, math.nan]]), "not all finite"),
        (np.zeros((1, 2)), "all zero"),
    ],
)
def test_what_is_no_evidence_is_refused(other: np.ndarray, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        distance(np.array([[1.0, 2.0]]), other)
    with pytest.raises(ValueError, match="cannot be compared"):
        distance(np.zeros((0, 2)), np.zeros((0, 2)))


def test_equal_logits_are_the_same_arm_twice() -> None:
    same = np.array([[1.0, 2.0]])
    assert judge(distance(same, same), ENVELOPE).verdict is Verdict.NOT_RUN
    assert judge(distance(same, same + np.array([0.0, 1e-6])), ENVELOPE).verdict is Verdict.WITHIN_ENVELOPE


def test_forks_are_ties_only_where_both_sides_are_close(stream: Make) -> None:
    reference = stream([0, 1, 2], gaps=[1.0, 0.01, 1.0])
    logits = np.array([[5.0, 1, 1], [1, 1, 1.005], [3, 0, 1]])
    forks = forks_of(reference, logits)
    assert [(fork.index, fork.arm_id, fork.tie(0.02)) for fork in forks] == [(1, 2, True), (2, 0, False)]
    assert not Reanchored(3, forks, 0.02).all_ties
    assert Reanchored(3, forks[:1], 0.02).all_ties


def test_penalties_are_llama_cpps() -> None:
    row = np.array([2.0, -2.0, 1.0, 1.0])
    sampler = Sampler(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25, penalty_window=3)
    # The window holds 0, 1, 1: token 0 is halved, token 1 doubled away; each loses count * 0.5 + 0.25. 3 is outside.
    assert penalised(row, [3, 0, 1, 1], sampler).tolist() == [2 / 2 - 0.75, -2 * 2 - 1.25, 1.0, 1.0]
    assert penalised(row, [3, 3], Sampler()).tolist() == row.tolist()


def history(stream: Make, said: list[int]) -> tuple[Stream, np.ndarray]:
    """Logits that prefer 1, then 2, then 3, whatever came before; the prompt is 1 2 3."""
    logits = np.tile(np.array([0.0, 3.0, 2.5, 2.0, 0.0]), (len(said), 1))
    return stream(said), logits


# Repetition 2 and a window of 2 over [1 2 3]: up to date, 1 is drawn, then (3 1) leaves 2, (1 2) leaves 3, and so on.
# A token late, (2 3) still leaves 1 after 1; then (3 1) leaves 2, (1 1) leaves 2, (1 2) leaves 3, (2 2) leaves 1.
UP_TO_DATE, STALE = [1, 2, 3, 1, 2], [1, 1, 2, 2, 3]
SAMPLER = Sampler(repetition_penalty=2.0, penalty_window=2)


def test_an_up_to_date_history_is_identical(stream: Make) -> None:
    found = follow(*history(stream, UP_TO_DATE), SAMPLER, 0.02)
    assert found.verdict is Verdict.IDENTICAL
    assert found.details["decided"] == 5
    assert found.details["telling"] == [1, 2, 3, 4]


def test_a_stale_history_is_named(stream: Make) -> None:
    found = follow(*history(stream, STALE), SAMPLER, 0.02)
    assert found.verdict is Verdict.DIVERGED
    assert found.headline.startswith("the history is one token stale")
    assert found.details["wrong"][0] == {"index": 1, "token_id": 1, "expected_id": 2, "lagging_id": 1}


def test_another_mistake_is_not_called_stale(stream: Make) -> None:
    found = follow(*history(stream, [1, 2, 3, 1, 4]), SAMPLER, 0.02)
    assert found.verdict is Verdict.DIVERGED
    assert "stale" not in found.headline


def test_a_case_that_cannot_tell_proves_nothing(stream: Make) -> None:
    found = follow(*history(stream, [1, 1]), Sampler(), 0.02)
    assert found.verdict is Verdict.NOT_RUN
    assert "proves nothing" in found.headline


def hit_pair(stream: Make, cached: int, pieces: list[list[int]]) -> tuple[Stream, Stream]:
    usage = dict(prompt_tokens=6, completion_tokens=1, total_tokens=7)
    cold = stream(
        [1], usage=Usage(**usage, cached_tokens=0), counters={"prefill_pieces": [[0, 3], [3, 5], [5, 6]]}
    )
    return cold, stream([1], usage=Usage(**usage, cached_tokens=cached), counters={"prefill_pieces": pieces})


@pytest.mark.parametrize(
    ("cached", "pieces", "verdict", "said"),
    [
        (5, [[5, 6]], Verdict.HELD, "reused 5"),
        (3, [[3, 5], [5, 6]], Verdict.HELD, "reused 3"),
        (0, [[0, 3], [3, 5], [5, 6]], Verdict.BROKEN, "nothing was reused"),
        (4, [[4, 5], [5, 6]], Verdict.BROKEN, "reused 4 tokens, one token too many: the cold run cut at 3"),
        (3, [[4, 5], [5, 6]], Verdict.BROKEN, "went on at 4: 1 skipped"),
        (5, [[4, 6]], Verdict.BROKEN, "went on at 4: 1 fed twice"),
        (3, [[3, 6]], Verdict.BROKEN, "the hit ran [(3, 6)], the cold run"),
        (6, [], Verdict.BROKEN, "ran nothing"),
    ],
)
def test_a_hit_runs_the_cold_runs_tail(
    stream: Make, cached: int, pieces: list[list[int]], verdict: Verdict, said: str
) -> None:
    found = reused(*hit_pair(stream, cached, pieces))
    assert found.verdict is verdict
    assert said in found.headline


@pytest.mark.parametrize(
    ("left", "verdict", "said"),
    [
        (0, Verdict.HELD, "0 of 5 tokens were left"),
        (3, Verdict.HELD, "3 of 5"),
        (5, Verdict.NOT_RUN, "nothing was pushed out"),
    ],
)
def test_what_was_pushed_out_is_found_less_far(stream: Make, left: int, verdict: Verdict, said: str) -> None:
    again, stored = (hit_pair(stream, cached, [[cached, 6]])[1] for cached in (left, 5))
    found = given_up(again, stored)
    assert found.verdict is verdict
    assert said in found.headline


def test_a_burst_is_seen(stream: Make) -> None:
    ids = list(range(20))
    ms = 1_000_000
    timings = {"token_ns": [10 * ms] * 19}
    steady = stream(ids, timings=timings, arrivals_ns=tuple(i * ms for i in range(5, 205, 10)))
    burst = stream(ids, timings=timings, arrivals_ns=tuple(200 * ms + i for i in range(20)))
    assert spread_of([steady]).verdict is Verdict.HELD
    assert spread_of([steady, burst]).verdict is Verdict.BROKEN
    assert "arrived in one burst" in spread_of([burst]).headline
    assert spread_of([]).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("prompt", "cached", "said"),
    [
        ((1, 2, 9), 2, ""),
        ((1, 2, 9), 3, "reused 3 tokens, one token too many: its prompt shares 2"),
        ((1, 2, 3), 3, ""),
    ],
)
def test_a_hit_adopts_no_more_than_the_prompts_share(
    stream: Make, prompt: tuple[int, ...], cached: int, said: str
) -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=1, total_tokens=4, cached_tokens=cached)
    found = too_far(stream([1]), stream([1], prompt_token_ids=prompt, usage=usage))
    assert said in found
    assert bool(found) == bool(said)
