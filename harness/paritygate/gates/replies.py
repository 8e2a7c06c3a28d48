"""From what an arm or a comparison said to a check."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from paritygate.arms.base import Arm, ArmError, RowFailed
from paritygate.case import Case
from paritygate.compare.comparison import Comparison
from paritygate.compare.identity import compare
from paritygate.gates.arm_pool import ArmPool
from paritygate.stream import Stream
from paritygate.verdict import Check, Outcome, Verdict

# How often an arm is asked again before a difference counts: a kernel may round differently once in many forwards.
REPEATS = 3


def could_not_run(gate: str, name: str, error: ArmError, seconds: float = 0.0) -> Check:
    """A check whose arm failed, with what was printed: SETUP_ERROR; a row that the engine failed is a failure."""
    failed = isinstance(error, RowFailed)
    outcome, verdict = (
        (Outcome.FAIL, Verdict.DIVERGED) if failed else (Outcome.COULD_NOT_RUN, Verdict.SETUP_ERROR)
    )
    return Check(gate, name, outcome, verdict, str(error), {"printed": error.printed}, seconds)


def outcome_of(verdict: Verdict, passing: tuple[Verdict, ...]) -> Outcome:
    """What a claim makes of a verdict: empty evidence fails, a setup that is wrong could not run."""
    if verdict in passing:
        return Outcome.PASS
    if verdict is Verdict.SETUP_ERROR:
        return Outcome.COULD_NOT_RUN
    return Outcome.INCONCLUSIVE if verdict is Verdict.INCONCLUSIVE else Outcome.FAIL


def unless_unsteady(found: Comparison, arm: Arm, case: Case, first: Stream, *, floor: float) -> Comparison:
    """The comparison, or INCONCLUSIVE where the arm, asked again, disagrees with its own first answer."""
    if found.verdict not in (Verdict.DIVERGED, Verdict.LENGTH):
        return found
    for _ in range(REPEATS):
        if arm.capabilities.resets:
            arm.reset()
        # Asked again cold, an arm repeats every bit; one that may have reused state need only repeat its tokens.
        repeated = compare(first, arm.generate(case), floor=floor, exact_logprobs=arm.capabilities.resets)
        if repeated.verdict is not Verdict.IDENTICAL:
            return unsteady(found, arm, repeated)
    return found


def unsteady(found: Comparison, arm: Arm, repeated: Comparison) -> Comparison:
    """INCONCLUSIVE: what an arm says twice is not the same, so nothing that it says once proves anything."""
    return Comparison(
        Verdict.INCONCLUSIVE,
        f"{arm.name} disagrees with its own repeat ({repeated.headline}), so nothing is proved about: {found.headline}",
        found.details | {"repeat": repeated.details},
    )


def check_of(
    gate: str,
    name: str,
    found: Comparison,
    *,
    seconds: float,
    passing: tuple[Verdict, ...] = (Verdict.IDENTICAL,),
    **more: Any,
) -> Check:
    """A check from a comparison; `more` is further evidence."""
    return Check(
        gate,
        name,
        outcome_of(found.verdict, passing),
        found.verdict,
        found.headline,
        found.details | more,
        seconds,
    )


def judged(
    gate: str, name: str, arm_name: str, arms: ArmPool, judge: Callable[[Arm], Comparison]
) -> Iterator[Check]:
    """One check of one arm: what `judge` makes of it, HELD being the pass; an arm that fails could not run."""
    started = time.monotonic()
    try:
        with arms.use(arm_name) as arm:
            found = judge(arm)
    except ArmError as error:
        arms.drop(arm_name)
        yield could_not_run(gate, name, error, time.monotonic() - started)
        return
    yield check_of(gate, name, found, seconds=time.monotonic() - started, passing=(Verdict.HELD,))
