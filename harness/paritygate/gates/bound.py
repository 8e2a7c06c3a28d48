"""The bound gate: what the engine remembers of prompts stays within the limit that it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from paritygate.arms.base import Arm
from paritygate.case import Case
from paritygate.compare.comparison import Comparison
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.claims import every_arm
from paritygate.gates.replies import judged
from paritygate.policy import BoundClaim, Policy
from paritygate.verdict import Check, Verdict

GATE = "bound"


def judge(arm: Arm, cases: list[Case], limit: int) -> Comparison:
    """Fill the cache with the cases, one after the other, and read what it holds. Raises ArmError."""
    arm.reset()
    held = [0]
    for case in cases:
        arm.generate(case)
        held.append(arm.cache_bytes())
    grown = sum(max(0, after - before) for before, after in pairwise(held))
    details = {"limit_bytes": limit, "held_bytes": held[1:], "stored_bytes": grown}
    if max(held) > limit:
        at = next(i for i, size in enumerate(held) if size > limit)
        what = (
            f"after {at} prompts the cache holds {held[at]} bytes, {max(held)} at most: the limit of {limit} is not "
            "kept"
        )
        return Comparison(Verdict.BROKEN, what, details)
    # Without a limit every new prompt adds to what is held.
    if not any(after <= before for before, after in pairwise(held)):
        what = f"the prompts put {grown} bytes into the cache, its limit of {limit} was never reached"
        return Comparison(Verdict.NOT_RUN, what, details)
    what = f"{len(cases)} prompts were asked, and the cache never held more than {max(held)} of {limit} bytes"
    return Comparison(Verdict.HELD, what, details)


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every bound claim, its arms side by side."""
    every = policy.all_cases(root)

    def checks(name: str, claim: BoundClaim, arm: str, pool: ArmPool) -> Iterator[Check]:
        cases = [every[case] for case in claim.cases]
        progress(f"bound: {arm}, {len(cases)} prompts in a cache of {claim.limit_bytes} bytes")
        return judged(
            GATE, f"bound/{name}/{arm}/limit", arm, pool, lambda it: judge(it, cases, claim.limit_bytes)
        )

    yield from every_arm(policy, BoundClaim, arms, checks)
