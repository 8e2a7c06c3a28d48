"""The abort gate: a client that leaves early leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from paritygate.arms.base import Arm
from paritygate.case import Case
from paritygate.compare.comparison import Comparison
from paritygate.compare.identity import compare
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.claims import every_arm
from paritygate.gates.replies import judged
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
    running, took = _left(arm, claim, case)
    details = {"times": claim.times, "running": running, "seconds": took}
    if running:
        what = (
            f"{running} of {claim.times} answers still run {claim.within_s:g} s after their clients left: "
            "a disconnected client keeps its row"
        )
        return Comparison(Verdict.BROKEN, what, details)
    began = time.monotonic()
    after = compare(before, arm.generate(case), floor=floor)
    whole = time.monotonic() - began
    details["one_answer_seconds"] = whole
    if after.verdict is not Verdict.IDENTICAL:
        what = f"after {claim.times} aborted answers the next one is another: {after.headline}"
        return Comparison(after.verdict, what, after.details | details)
    if whole <= claim.within_s:
        what = (
            f"a whole answer takes {whole:.2f} s: one that nobody ended would be gone within {claim.within_s:g} s "
            "as well; take a case with a longer one, or a smaller `within_s`"
        )
        return Comparison(Verdict.NOT_RUN, what, details)
    what = f"{claim.times} answers were left early: none was under way {took:.2f} s later, and the next is identical"
    return Comparison(Verdict.HELD, what, details)


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every abort claim, its arms side by side."""
    every = policy.all_cases(root)
    floor = policy.goldens.margin_floor

    def checks(name: str, claim: AbortClaim, arm: str, pool: ArmPool) -> Iterator[Check]:
        case = every[claim.case]
        progress(f"abort: {arm}, {claim.times} answers of {case.name} left early")
        return judged(
            GATE, f"abort/{name}/{arm}/{case.name}", arm, pool, lambda it: judge(it, claim, case, floor)
        )

    yield from every_arm(policy, AbortClaim, arms, checks)
