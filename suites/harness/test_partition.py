"""The partition gate, over an engine that is a table: logits are a sum over what a position is allowed to see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from table_arm import Table, checks
from two_cases import ONE_ARM

from paritygate.gates import partition
from paritygate.policy import PolicyError
from paritygate.policy.load import policy_of
from paritygate.replay import narrowed
from paritygate.verdict import Check, Verdict

POLICY = (
    ONE_ARM
    + """\
[envelopes.e]
kl_mean = 0.01
kl_max = 0.01
max_abs_logit = 0.01
reason = "by hand"
[claims.cut]
kind = "partition"
arms = ["one"]
cases = ["long"]
sizes = [1, 5]
envelope = "e"
"""
)
COMMAND = 'kind = "command"\ncommand = ["x", "{prompt}"]'


class Summing(Table):
    """Position i's logits are the sum of the tokens so far, in three entries.

    `seen_from(i, size)` is the first token that it sees in pieces of that size, 0 in one forward.
    """

    def __init__(
        self, seen_from: Callable[[int, int], int] = lambda i, size: 0, forwards: int | None = None
    ) -> None:
        super().__init__()
        self._seen_from, self._forwards = seen_from, forwards

    def _rows(self, tokens: tuple[int, ...], size: int) -> np.ndarray:
        sums = [sum(tokens[(self._seen_from(i, size) if size else 0) : i + 1]) for i in range(len(tokens))]
        return np.asarray(sums, np.float32)[:, None] * np.asarray([[0.1, 0.2, 0.4]], np.float32)

    def logits(self, tokens: tuple[int, ...], start: int) -> np.ndarray:
        return self._rows(tokens, 0)[start:]

    def logits_in_pieces(self, tokens: tuple[int, ...], start: int, size: int) -> tuple[np.ndarray, int]:
        forwards = -(-len(tokens) // size) if self._forwards is None else self._forwards
        return self._rows(tokens, size)[start:], forwards


def check_of(arm: Table, text: str = POLICY) -> Check:
    (check,) = checks(partition, policy_of(text.encode(), Path()), arm).values()
    return check


def test_what_is_cut_alike_passes() -> None:
    check = check_of(Summing())
    assert (check.name, check.verdict) == ("partition/cut/one/long", Verdict.WITHIN_ENVELOPE)
    assert check.headline.startswith("12 positions, pieces of 1, 5: largest |Δlogit| from one forward 0")


def test_a_size_that_loses_tokens_is_named_and_where() -> None:
    """Single steps see from the fourth token before them on: at position 4 the first token, a 1, is missing."""
    check = check_of(Summing(lambda i, size: max(0, i - 3) if size == 1 else 0))
    assert (check.verdict, str(check.outcome)) == (Verdict.DIVERGED, "fail")
    assert "pieces of 1: " in check.headline
    assert check.headline.endswith("pieces of 5 say what one forward says")
    assert check.details["sizes"]["1"]["max_abs_logit"] == pytest.approx(0.4 * sum(range(1, 9)), rel=1e-5)
    assert check.details["sizes"]["1"]["max_abs_logit_at"] == 11


def test_what_was_not_cut_is_no_evidence() -> None:
    assert "are 12 forwards, the arm ran 1" in check_of(Summing(forwards=1)).headline
    check = check_of(Summing(), POLICY.replace("sizes = [1, 5]", "sizes = [12]"))
    assert check.verdict is Verdict.NOT_RUN
    assert "pieces of 12 do not cut 12 tokens" in check.headline


def test_numbers_that_are_none_fail() -> None:
    check = check_of(Summing(lambda i, size: i + 1))  # an empty sum: all zero
    assert "in pieces of 1: the candidate's logits are all zero" in check.headline


def test_a_check_can_be_played_again() -> None:
    policy = policy_of(POLICY.encode(), Path())
    gate, alone, case = narrowed(policy, "partition/cut/one/long")
    assert (gate, case, alone.claims) == ("partition", "long", policy.claims)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("sizes = [1, 5]", "sizes = []"), "`sizes` is empty"),
        (("sizes = [1, 5]", "sizes = [0]"), "sizes"),
        (('envelope = "e"', 'envelope = "f"'), "no envelope is named 'f'"),
        (('kind = "tokenline"\nbackend = "torch"', COMMAND), "cut into forwards"),
    ],
)
def test_a_claim_that_cannot_be_held_is_refused(change: tuple[str, str], why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        policy_of(POLICY.replace(*change).encode(), Path())
