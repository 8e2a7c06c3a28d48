"""The gates about rows: in a batch, left early, and what stays remembered; engines here are tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from two_cases import TOY

from paritygate import policy as policies
from paritygate.arms.base import ArmError, Capabilities
from paritygate.case import Case
from paritygate.compare.context import too_short
from paritygate.compare.work import work_of
from paritygate.gates import abort, batch, bound
from paritygate.policy import Policy
from paritygate.replay import NoSuchCheck, narrowed
from paritygate.stream import Position, Stream, TopToken, Usage
from paritygate.verdict import Check, Verdict

POLICY = (
    TOY
    + """\
[arms.one]
kind = "tokenline"
backend = "torch"
[[cases]]
name = "long"
max_tokens = 4
prompt_token_ids = [1, 2, 3, 4, 5, 6, 7, 8]
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


def said(case: Case, seed: int | None = None, *, rows: int = 1, logprob: float = -0.5) -> Stream:
    """After the prompt's last token the next ones, shifted by the seed where the case draws."""
    prompt = case.prompt_token_ids or ()
    shift = (case.sampler.seed if seed is None else seed) or 0
    ids = tuple(
        prompt[-1] + 1 + i + (shift if case.sampler.temperature else 0) for i in range(case.max_tokens)
    )
    positions = tuple(
        Position(token_id=i, token=f"w{i} ", logprob=logprob, top=(TopToken(i, f"w{i} ", logprob),))
        for i in ids
    )
    return Stream(
        case=case.name,
        arm="one",
        text="".join(f"w{i} " for i in ids),
        prompt_token_ids=prompt,
        token_ids=ids,
        positions=positions,
        finish_reason="length",
        finish_cause="Length",
        usage=Usage(
            prompt_tokens=len(prompt), completion_tokens=len(ids), total_tokens=len(prompt) + len(ids)
        ),
        counters={"max_rows": rows},
    )


class Table:
    """`beside(case)` is what a row says in a batch; `running` and `held` are read one after the other."""

    name = "one"

    def __init__(
        self,
        beside: Callable[[Case], Stream] = lambda case: said(case, rows=4),
        running: tuple[int, ...] = (0,),
        held: tuple[int, ...] = (),
        after: Callable[[Case], Stream] = said,
    ) -> None:
        self.capabilities = Capabilities(**dict.fromkeys(Capabilities.__struct_fields__, True))
        self.beside, self._running, self._held, self.after = beside, list(running), list(held), after
        self.aborted = 0

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        return (said(case),) * times

    def generate(self, case: Case) -> Stream:
        return self.after(case)

    def together(self, cases: tuple[Case, ...]) -> tuple[Stream, ...]:
        return tuple(self.beside(case) for case in cases)

    def abort(self, case: Case) -> None:
        self.aborted += 1

    def running(self) -> int:
        return self._running.pop(0) if len(self._running) > 1 else self._running[0]

    def cache_bytes(self) -> int:
        return self._held.pop(0)

    def reset(self) -> None:
        """Nothing is kept."""


class Pool:
    def __init__(self, arm: object) -> None:
        self.arm = arm

    @contextlib.contextmanager
    def use(self, name: str) -> Iterator[object]:
        if isinstance(self.arm, ArmError):
            raise self.arm
        yield self.arm

    def drop(self, name: str) -> None:
        """Nothing to stop."""


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    (tmp_path / "paritygate.toml").write_text(POLICY)
    return policies.load(tmp_path)


def checks(gate: object, policy: Policy, arm: object) -> dict[str, Check]:
    found = list(gate.run(policy, Path(), lambda line: None, Pool(arm)))  # type: ignore[attr-defined]
    return {check.name: check for check in found}


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


def test_clients_that_leave_leave_nothing(policy: Policy) -> None:
    arm = Table(running=(3, 1, 0))
    (check,) = checks(abort, policy, arm).values()
    assert (check.name, str(check.outcome), arm.aborted) == ("abort/leaving/one/long", "pass", 3)


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
