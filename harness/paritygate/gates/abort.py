"""The abort gate: a client that leaves early leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from paritygate.arms.base import Arm, ArmError
from paritygate.case import Case
from paritygate.compare.comparison import Comparison
from paritygate.compare.identity import compare
from paritygate.gates.arm_pool import ArmPool, pool_of
from paritygate.gates.lanes import side_by_side
from paritygate.gates.replies import check_of, could_not_run
from paritygate.policy import AbortClaim, Policy
from paritygate.verdict import Check, Verdict

GATE = "abort"
POLL_SECONDS = 0.02


def _left(arm: Arm, claim: AbortClaim, case: Case) -> tuple[int, float]:
    """How many answers are under way once all were left and `within_s` has passed, and how long it took to none."""
    for _ in range(claim.times):
        arm.abort(case)
    started = time.monotonic()
    while (running := arm.running()) and time.monotonic() - started < claim.within_s:
        time.sleep(POLL_SECONDS)
    return running, time.monotonic() - started


def judge(arm: Arm, claim: AbortClaim, case: Case, floor: float) -> Comparison:
    """Answer, abort many, and answer again. Raises ArmError."""
    before = arm.repeat(case, 1)[0]
    answering = before.timings.get("total_ns", 0) / 1e9
    running, took = _left(arm, claim, case)
    details = {"times": claim.times, "running": running, "seconds": took, "one_answer_seconds": answering}
    if running:
        what = (
            f"{running} of {claim.times} answers still run {claim.within_s:g} s after their clients left: "
            "a disconnected client keeps its row"
        )
        return Comparison(Verdict.BROKEN, what, details)
    after = compare(before, arm.generate(case), floor=floor)
    if after.verdict is not Verdict.IDENTICAL:
        what = f"after {claim.times} aborted answers the next one is another: {after.headline}"
        return Comparison(after.verdict, what, after.details | details)
    what = f"{claim.times} answers were left early: none was under way {took:.2f} s later, and the next is identical"
    return Comparison(Verdict.HELD, what, details)


def _checks(
    name: str,
    claim: AbortClaim,
    arm_name: str,
    case: Case,
    policy: Policy,
    arms: ArmPool,
    progress: Callable[[str], None],
) -> Iterator[Check]:
    check, started = f"abort/{name}/{arm_name}/{case.name}", time.monotonic()
    progress(f"abort: {arm_name}, {claim.times} answers of {case.name} left early")
    try:
        with arms.use(arm_name) as arm:
            if not arm.capabilities.aborts:
                raise ArmError(f"arm {arm_name} cannot leave an answer early, or not tell what still runs")
            found = judge(arm, claim, case, policy.goldens.margin_floor)
    except ArmError as error:
        arms.drop(arm_name)
        yield could_not_run(GATE, check, error, time.monotonic() - started)
        return
    yield check_of(GATE, check, found, seconds=time.monotonic() - started, passing=(Verdict.HELD,))


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every abort claim, its arms side by side."""
    every = policy.all_cases(root)
    claims = {name: claim for name, claim in policy.claims.items() if isinstance(claim, AbortClaim)}
    with pool_of(policy, arms) as pool:
        yield from side_by_side(
            [
                partial(_checks, name, claim, arm, every[claim.case], policy, pool, progress)
                for name, claim in claims.items()
                for arm in claim.arms
            ]
        )
