"""The gates about rows: in a batch, left early, and what stays remembered; engines here are tables."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from table_arm import Table, checks, said
from two_cases import ONE_ARM

from paritygate import policy as policies
from paritygate.arms.base import ArmError
from paritygate.case import Case
from paritygate.compare.context import too_short
from paritygate.compare.work import work_of
from paritygate.gates import abort, batch, bound
from paritygate.policy import Policy
from paritygate.replay import NoSuchCheck, narrowed
from paritygate.stream import Stream
from paritygate.verdict import Check, Verdict

POLICY = (
    ONE_ARM
    + """\
[[cases]]
name = "short"
max_tokens = 4
prompt_token_ids = [1, 2]
[[cases]]
name = "drawn"
max_tokens = 4
prompt_token_ids = [3, 4, 5]
sampler = { temperature = 1.0, seed = 7 }
[[cases]]
name = "drawn-too"
max_tokens = 4
prompt_token_ids = [6, 7]
sampler = { temperature = 1.0, seed = 11 }
[envelopes.e]
kl_mean = 1
kl_max = 1
max_abs_logit = 0.01
reason = "by hand"
[claims.rows]
kind = "batch"
arms = ["one"]
cases = ["long", "short", "drawn", "drawn-too"]
envelope = "e"
[claims.leaving]
kind = "abort"
arms = ["one"]
case = "long"
times = 3
within_s = 0.1
[claims.kept]
kind = "bound"
arms = ["one"]
cases = ["long", "short", "drawn"]
limit_bytes = 100
"""
)


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    (tmp_path / "paritygate.toml").write_text(POLICY)
    return policies.load(tmp_path)


def rows(policy: Policy, arm: object) -> dict[str, Check]:
    return {name.rpartition("/")[2]: check for name, check in checks(batch, policy, arm).items()}


def test_rows_that_say_the_same_pass(policy: Policy) -> None:
    found = rows(policy, Table())
    assert list(found) == ["long", "short", "drawn", "drawn-too"]
    assert {str(check.outcome) for check in found.values()} == {"pass"}
    assert "in a batch of 4" in found["short"].headline


def test_a_row_that_was_never_in_a_batch_proves_nothing(policy: Policy) -> None:
    found = rows(policy, Table(lambda case: said(case, rows=1)))
    assert {(str(check.outcome), check.verdict) for check in found.values()} == {("fail", Verdict.NOT_RUN)}


def test_padded_rows_that_differ_are_told_from_the_longest(policy: Policy) -> None:
    def beside(case: Case) -> Stream:
        stream = said(case, rows=4)
        ids = tuple(i + 1 for i in stream.token_ids or ())
        return stream if case.name == "long" else msgspec.structs.replace(stream, token_ids=ids)

    found = rows(policy, Table(beside))
    assert str(found["long"].outcome) == "pass"
    assert found["short"].headline.startswith(
        "rows that are padded differ (3 of 3), the longest of the batch does not"
    )


def test_a_neighbours_seed_is_named(policy: Policy) -> None:
    found = rows(policy, Table(lambda case: said(case, seed=11, rows=4)))
    assert found["drawn"].headline.startswith(
        "it draws with the seed of drawn-too (11) instead of its own (7)"
    )
    assert {name for name, check in found.items() if str(check.outcome) == "fail"} == {"drawn"}


def test_rows_that_draw_and_differ_alone_are_told(policy: Policy) -> None:
    found = rows(policy, Table(lambda case: said(case, seed=99, rows=4)))
    assert "only rows that draw at random differ (2 of 2)" in found["drawn"].headline


def test_logprobs_outside_the_envelope_fail_where_the_tokens_agree(policy: Policy) -> None:
    found = rows(policy, Table(lambda case: said(case, rows=4, logprob=-0.52)))
    assert {check.verdict for check in found.values()} == {Verdict.DIVERGED}
    said_of = found["long"].headline
    assert "is -0.52 where -0.5 is expected: 0.02 apart, 0.01 is allowed" in said_of


def test_an_arm_that_disagrees_with_its_own_repeat_is_inconclusive(policy: Policy) -> None:
    arm = Table(lambda case: said(case, seed=99, rows=4), after=lambda case: said(case, seed=98))
    assert str(rows(policy, arm)["drawn"].outcome) == "inconclusive"


def test_an_arm_that_cannot_be_started_could_not_run(policy: Policy) -> None:
    for gate in (batch, abort, bound):
        found = checks(gate, policy, ArmError("arm one cannot be started"))
        assert {str(check.outcome) for check in found.values()} == {"could not run"}


def slowly(case: Case) -> Stream:
    """An answer that takes longer than the claim waits."""
    time.sleep(0.15)
    return said(case)


def test_clients_that_leave_leave_nothing(policy: Policy) -> None:
    arm = Table(running=(3, 1, 0), after=slowly)
    (check,) = checks(abort, policy, arm).values()
    assert (check.name, str(check.outcome), arm.aborted) == ("abort/leaving/one/long", "pass", 3)


def test_answers_that_end_by_themselves_prove_nothing(policy: Policy) -> None:
    (check,) = checks(abort, policy, Table(running=(0,))).values()
    assert check.verdict is Verdict.NOT_RUN
    assert "one that nobody ended would be gone within 0.1 s as well" in check.headline


def test_a_row_that_stays_is_counted(policy: Policy) -> None:
    (check,) = checks(abort, policy, Table(running=(2,))).values()
    assert str(check.outcome) == "fail"
    assert check.headline.startswith("2 of 3 answers still run 0.1 s after their clients left")


def test_an_answer_that_changes_after_aborts_fails(policy: Policy) -> None:
    other = msgspec.structs.replace
    arm = Table(after=lambda case: other(said(case), token_ids=(9, 9, 9, 9)))
    (check,) = checks(abort, policy, arm).values()
    assert check.headline.startswith("after 3 aborted answers the next one is another")


@pytest.mark.parametrize(
    ("held", "outcome", "says"),
    [
        ((60, 90, 80), "pass", "never held more than 90 of 100 bytes"),
        (
            (60, 120, 180),
            "fail",
            "after 2 prompts the cache holds 120 bytes, 180 at most",
        ),
        ((20, 40, 60), "fail", "its limit of 100 was never reached"),
    ],
)
def test_a_cache_stays_within_its_limit(
    policy: Policy, held: tuple[int, ...], outcome: str, says: str
) -> None:
    (check,) = checks(bound, policy, Table(held=held)).values()
    assert str(check.outcome) == outcome
    assert says in check.headline


def test_a_short_prompt_is_not_a_long_one() -> None:
    case = Case(name="deep", max_tokens=1, prompt_token_ids=(1, 2, 3), min_prompt_tokens=3)
    assert too_short(case, said(case)) is None
    cut = msgspec.structs.replace(said(case), prompt_token_ids=(1, 2))
    found = too_short(case, said(case), cut)
    assert found is not None
    assert found.verdict is Verdict.BROKEN
    assert "read 2 prompt tokens, the case is about 3 and more" in found.headline
    untold = msgspec.structs.replace(cut, prompt_token_ids=None, usage=None)
    assert "an untold number" in (too_short(case, untold) or cut).headline  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("counters", "verdict"),
    [
        ({"head_positions": 4, "host_reads": 4, "decode_forwards": 3}, Verdict.HELD),
        ({"head_positions": 6}, Verdict.HELD),  # an end of sequence, and the forward that was under way
        ({"head_positions": 11}, Verdict.BROKEN),
        ({"host_reads": 8}, Verdict.BROKEN),
    ],
)
def test_work_is_one_a_token(counters: dict[str, int], verdict: Verdict) -> None:
    case = Case(name="c", max_tokens=4, prompt_token_ids=(1,))
    found = work_of([msgspec.structs.replace(said(case), counters=counters)])
    assert found is not None
    assert found.verdict is verdict
    assert work_of([msgspec.structs.replace(said(case), counters={})]) is None


@pytest.mark.parametrize(
    ("check", "gate", "case"),
    [
        ("batch/rows/one/drawn", "batch", "drawn"),
        ("abort/leaving/one/long", "abort", "long"),
        ("bound/kept/one/limit", "bound", "long"),
    ],
)
def test_a_check_can_be_played_again(policy: Policy, check: str, gate: str, case: str) -> None:
    assert narrowed(policy, check)[0::2] == (gate, case)
    (claim,) = narrowed(policy, check)[1].claims.values()
    assert claim == next(c for c in policy.claims.values() if type(c) is type(claim))


@pytest.mark.parametrize(
    "check", ["batch/rows/one/nobody", "batch/rows/two/long", "abort/leaving/one", "bound/x/one/limit"]
)
def test_a_check_that_no_claim_makes_is_not_played(policy: Policy, check: str) -> None:
    with pytest.raises(NoSuchCheck, match=r"no claim of this policy|no check that can be replayed"):
        narrowed(policy, check)
