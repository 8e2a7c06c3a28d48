"""The envelope gate: over the tokens of the goldens, one arm's logits lie near another's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from paritygate.arms.base import ArmError
from paritygate.compare.comparison import Comparison
from paritygate.compare.envelope import Distance, distance
from paritygate.gates.arm_pool import ArmPool, pool_of
from paritygate.gates.lanes import side_by_side
from paritygate.gates.replies import check_of, could_not_run
from paritygate.golden.store import Golden, GoldenError, Store
from paritygate.logits import log_softmax
from paritygate.policy import Envelope, EnvelopeClaim, Policy
from paritygate.triage.divergence import Divergence
from paritygate.triage.triage import Triage
from paritygate.verdict import Check, Outcome, Verdict

GATE = "envelope"

Logits = dict[tuple[str, str], np.ndarray | ArmError]


def outside(found: Distance, envelope: Envelope) -> str:
    """Which figures are above their limits, where; "" for none."""
    return "; ".join(
        f"{name} {value:.3g} at position {at} is above {limit:g}"
        for name, value, at, limit in (
            ("KL mean", found.kl_mean, found.kl_max_at, envelope.kl_mean),
            ("KL max", found.kl_max, found.kl_max_at, envelope.kl_max),
            ("|Δlogit|", found.max_abs_logit, found.max_abs_logit_at, envelope.max_abs_logit),
        )
        if value > limit
    )


def judge(found: Distance, envelope: Envelope) -> Comparison:
    """WITHIN_ENVELOPE, or DIVERGED naming what is outside; logits that are equal bit for bit are one arm twice."""
    details = found.to_json() | {
        "limits": {
            "kl_mean": envelope.kl_mean,
            "kl_max": envelope.kl_max,
            "max_abs_logit": envelope.max_abs_logit,
        }
    }
    figures = f"KL mean {found.kl_mean:.2g}, max {found.kl_max:.2g} nats; largest |Δlogit| {found.max_abs_logit:.2g}"
    if found.max_abs_logit == 0:
        what = (
            "the two arms' logits are equal bit for bit: is it the same arm twice? claim an identity instead"
        )
        return Comparison(Verdict.NOT_RUN, what, details)
    if what := outside(found, envelope):
        return Comparison(Verdict.DIVERGED, f"outside the envelope: {what} ({figures})", details)
    return Comparison(Verdict.WITHIN_ENVELOPE, f"{found.positions} positions: {figures}", details)


def _collect(
    arm_name: str,
    goldens: list[Golden],
    arms: ArmPool,
    collected: Logits,
    normalised: set[str],
    progress: Callable[[str], None],
) -> Iterator[Check]:
    """Teacher-force one arm; yields nothing, because a comparison needs both."""
    for golden in goldens:
        case = golden.case.name
        progress(f"envelope: {arm_name} {case}")
        try:
            with arms.use(arm_name) as arm:
                if not arm.capabilities.raw_logits:
                    normalised.add(arm_name)
                tokens = golden.prompt_token_ids + golden.token_ids[:-1]
                collected[arm_name, case] = arm.logits(tokens, len(golden.prompt_token_ids) - 1)
        except ArmError as error:
            arms.drop(arm_name)
            collected[arm_name, case] = error
    yield from ()


def _judge(
    name: str,
    sides: list[np.ndarray | ArmError],
    envelope: Envelope,
    normalised: set[str],
    started: float,
) -> Check:
    arrays: list[np.ndarray] = []
    for side in sides:
        if isinstance(side, ArmError):
            return could_not_run(GATE, name, side)
        arrays.append(side)
    if normalised:
        arrays = [log_softmax(side) for side in arrays]
    try:
        found = judge(distance(*arrays), envelope)
    except ValueError as error:
        return Check(GATE, name, Outcome.FAIL, Verdict.DIVERGED, str(error))
    if normalised:
        what = f"{found.headline} (of log-softmax: {' and '.join(sorted(normalised))} gives no raw logits)"
        found = Comparison(found.verdict, what, found.details)
    return check_of(GATE, name, found, seconds=time.monotonic() - started, passing=(Verdict.WITHIN_ENVELOPE,))


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every envelope claim: both arms side by side, then a check for each case."""
    store = Store(root / policy.goldens.directory)
    claims = {name: claim for name, claim in policy.claims.items() if isinstance(claim, EnvelopeClaim)}
    with pool_of(policy, arms) as pool:
        for name, claim in claims.items():
            try:
                goldens = [store.load(case) for case in claim.cases]
            except GoldenError as error:
                yield Check(GATE, f"envelope/{name}", Outcome.FAIL, Verdict.NOT_RUN, str(error))
                continue
            if not goldens:
                what = "the claim names no case: nothing was compared"
                yield Check(GATE, f"envelope/{name}", Outcome.FAIL, Verdict.NOT_RUN, what)
            logits: Logits = {}
            normalised: set[str] = set()
            yield from side_by_side(
                [partial(_collect, arm, goldens, pool, logits, normalised, progress) for arm in claim.arms]
            )
            triage = Triage(policy, pool, progress)
            for golden in goldens:
                case, started = golden.case.name, time.monotonic()
                sides = [logits[arm, case] for arm in claim.arms]
                envelope = policy.envelopes[claim.envelope]
                check = _judge(f"envelope/{name}/{case}", sides, envelope, normalised, started)
                divergence = Divergence(
                    case=golden.case,
                    arm=claim.arms[1],
                    reference=golden.as_stream(),
                    candidate=None,
                    against=claim.arms[0],
                    envelope=envelope,
                    floor=policy.goldens.margin_floor,
                    index=check.details.get("kl_max_at"),
                )
                yield triage.of(check, divergence)
