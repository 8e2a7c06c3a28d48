"""The partition gate: one forward over a text and several say the same, however it is cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from paritygate.arms.base import Arm, ArmError
from paritygate.case import Case
from paritygate.compare.comparison import Comparison
from paritygate.compare.context import too_short
from paritygate.compare.envelope import Distance, distance
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.claims import every_arm
from paritygate.gates.envelope import outside
from paritygate.gates.replies import check_of, could_not_run
from paritygate.policy import Envelope, PartitionClaim, Policy
from paritygate.verdict import Check, Verdict

GATE = "partition"


def judge(arm: Arm, case: Case, sizes: Sequence[int], envelope: Envelope) -> Comparison:
    """WITHIN_ENVELOPE, or which sizes are outside, where; NOT_RUN where nothing was cut. Raises ArmError."""
    stream = arm.generate(case)
    if short := too_short(case, stream, stream):
        return short
    tokens = (stream.prompt_token_ids or ()) + (stream.token_ids or ())
    whole = arm.logits(tokens, 0)
    found: dict[int, Distance] = {}
    for size in sizes:
        if size >= len(tokens):
            what = f"pieces of {size} do not cut {len(tokens)} tokens: nothing was compared"
            return Comparison(Verdict.NOT_RUN, what, {"tokens": len(tokens)})
        cut, forwards = arm.logits_in_pieces(tokens, 0, size)
        wanted = -(-len(tokens) // size)
        if forwards != wanted:
            what = f"pieces of {size} of {len(tokens)} tokens are {wanted} forwards, the arm ran {forwards}"
            return Comparison(Verdict.NOT_RUN, what, {"tokens": len(tokens), "forwards": forwards})
        try:
            found[size] = distance(whole, cut)
        except ValueError as error:
            return Comparison(Verdict.DIVERGED, f"in pieces of {size}: {error}", {"tokens": len(tokens)})
    return _judged(found, envelope)


def _judged(found: dict[int, Distance], envelope: Envelope) -> Comparison:
    details = {"sizes": {str(size): each.to_json() for size, each in found.items()}}
    wrong = {size: what for size, each in found.items() if (what := outside(each, envelope))}
    if wrong:
        agree = [str(size) for size in found if size not in wrong]
        beside = f"; pieces of {', '.join(agree)} say what one forward says" if agree else ""
        told = "; ".join(f"pieces of {size}: {what}" for size, what in wrong.items())
        return Comparison(
            Verdict.DIVERGED, f"cut into forwards the text says something else: {told}{beside}", details
        )
    worst = max(found, key=lambda size: found[size].max_abs_logit)
    each = found[worst]
    headline = (
        f"{each.positions} positions, pieces of {', '.join(map(str, found))}: largest |Δlogit| from one forward "
        f"{each.max_abs_logit:.2g} (in pieces of {worst}), KL max {max(d.kl_max for d in found.values()):.2g} nats"
    )
    return Comparison(Verdict.WITHIN_ENVELOPE, headline, details)


def _checks(
    prefix: str,
    claim: PartitionClaim,
    arm_name: str,
    cases: Sequence[Case],
    policy: Policy,
    arms: ArmPool,
    progress: Callable[[str], None],
) -> Iterator[Check]:
    for case in cases:
        name, started = f"{prefix}/{case.name}", time.monotonic()
        progress(f"partition: {arm_name} {case.name}")
        try:
            with arms.use(arm_name) as arm:
                found = judge(arm, case, claim.sizes, policy.envelopes[claim.envelope])
        except ArmError as error:
            arms.drop(arm_name)
            yield could_not_run(GATE, name, error, time.monotonic() - started)
            continue
        seconds = time.monotonic() - started
        yield check_of(GATE, name, found, seconds=seconds, passing=(Verdict.WITHIN_ENVELOPE,))


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every partition claim, its arms side by side."""
    every = policy.all_cases(root)

    def checks(name: str, claim: PartitionClaim, arm: str, pool: ArmPool) -> Iterator[Check]:
        cases = [every[case] for case in claim.cases]
        return _checks(f"{GATE}/{name}/{arm}", claim, arm, cases, policy, pool, progress)

    yield from every_arm(policy, PartitionClaim, arms, checks)
