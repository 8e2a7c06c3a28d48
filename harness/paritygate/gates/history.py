"""The history gate: penalties see every token up to the last one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from paritygate.arms.base import ArmError
from paritygate.case import Case
from paritygate.compare.history import follow
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.claims import every_arm
from paritygate.gates.replies import check_of, could_not_run
from paritygate.policy import HistoryClaim, Policy
from paritygate.verdict import Check, Outcome, Verdict

GATE = "history"


def _checks(
    arm_name: str, cases: list[Case], policy: Policy, arms: ArmPool, progress: Callable[[str], None]
) -> Iterator[Check]:
    if not cases:
        what = "the claim names no case: nothing was compared"
        yield Check(GATE, f"history/{arm_name}", Outcome.FAIL, Verdict.NOT_RUN, what)
    for case in cases:
        name, started = f"history/{arm_name}/{case.name}", time.monotonic()
        progress(f"history: {arm_name} {case.name}")
        try:
            with arms.use(arm_name) as arm:
                stream = arm.generate(case)
                prompt, said = stream.prompt_token_ids or (), stream.token_ids or ()
                logits = arm.logits(prompt + said[:-1], len(prompt) - 1)
        except ArmError as error:
            arms.drop(arm_name)
            yield could_not_run(GATE, name, error, time.monotonic() - started)
            continue
        found = follow(stream, logits, case.sampler, policy.goldens.margin_floor)
        yield check_of(
            GATE, name, found, seconds=time.monotonic() - started, manifests={arm_name: stream.manifest}
        )


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every history claim, its arms side by side."""
    every = policy.all_cases(root)

    def checks(name: str, claim: HistoryClaim, arm: str, pool: ArmPool) -> Iterator[Check]:
        return _checks(arm, [every[case] for case in claim.cases], policy, pool, progress)

    yield from every_arm(policy, HistoryClaim, arms, checks)
