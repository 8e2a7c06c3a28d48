"""The identity gate: the arms of a claim say the same thing, byte for byte."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from paritygate.arms.base import Arm, ArmError
from paritygate.case import Case
from paritygate.compare.arrivals import PIECES, spread_of, tokens_of
from paritygate.compare.comparison import Comparison
from paritygate.compare.constraint import unmet
from paritygate.compare.context import too_short
from paritygate.compare.identity import EXECUTION, SETTINGS, compare
from paritygate.gates.arm_pool import ArmPool, pool_of
from paritygate.gates.lanes import Job, side_by_side
from paritygate.gates.replies import REPEATS, check_of, could_not_run, unless_unsteady
from paritygate.policy import IdentityClaim, Policy
from paritygate.stream import Stream
from paritygate.triage.divergence import Divergence
from paritygate.triage.triage import Triage
from paritygate.verdict import Check, Outcome, Verdict

GATE = "identity"
# Where every answer of a claim is too short to show when its pieces arrive: by how much a longer one is asked for at
# a time, and the most, which 0.15 s are enough for at 6800 tokens a second.
LONGER = 4
MOST_TOKENS = 1024


@dataclass
class _Answers:
    """What the arms of one claim said, by arm and case, as far as they have got."""

    streams: dict[tuple[str, str], Stream] = field(default_factory=dict)
    errors: dict[tuple[str, str], ArmError] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)


def _collect(
    arm_name: str, cases: list[Case], arms: ArmPool, answers: _Answers, progress: Callable[[str], None]
) -> Iterator[Check]:
    """Ask one arm everything; yields nothing, because a comparison needs the others."""
    for number, case in enumerate(cases, 1):
        progress(f"identity: {arm_name} {number}/{len(cases)} {case.name}")
        try:
            with arms.use(arm_name) as arm:
                started = time.monotonic()
                answers.streams[arm_name, case.name] = arm.generate(case)
                answers.seconds[arm_name, case.name] = time.monotonic() - started
        except ArmError as error:
            arms.drop(arm_name)
            answers.errors[arm_name, case.name] = error
    yield from ()


def _compared(case: Case, reference: Stream, candidate: Stream, floor: float) -> Comparison:
    return (
        too_short(case, reference, candidate)
        or unmet(case, reference, candidate)
        or compare(reference, candidate, floor=floor, settings=SETTINGS + EXECUTION)
    )


def _known(
    claims: dict[str, IdentityClaim], collected: dict[str, _Answers], every: dict[str, Case], floor: float
) -> Iterator[Check]:
    """What is known of a run that ends early. A difference that nobody can be asked about again is not a failure yet:
    an arm may contradict itself."""
    for name, claim in claims.items():
        answers, first = collected[name], claim.arms[0]
        for arm in claim.arms[1:]:
            for case in claim.cases:
                if (first, case) not in answers.streams or (arm, case) not in answers.streams:
                    continue
                reference, candidate = answers.streams[first, case], answers.streams[arm, case]
                found = _compared(every[case], reference, candidate, floor)
                if found.verdict is not Verdict.IDENTICAL:
                    told = f"{found.headline}; the run ended before either arm was asked again"
                    found = Comparison(Verdict.INCONCLUSIVE, told, found.details)
                yield check_of(
                    GATE, f"identity/{name}/{arm}/{case}", found, seconds=answers.seconds[arm, case]
                )


def _judge(
    claim: str,
    first: str,
    other: str,
    case: Case,
    answers: _Answers,
    policy: Policy,
    arms: ArmPool,
    triage: Triage,
) -> Check:
    name, started = f"identity/{claim}/{other}/{case.name}", time.monotonic()
    for side in (first, other):
        if error := answers.errors.get((side, case.name)):
            return could_not_run(GATE, name, error)
    reference, candidate = answers.streams[first, case.name], answers.streams[other, case.name]
    floor = policy.goldens.margin_floor
    found = _compared(case, reference, candidate, floor)
    try:
        for arm_name, stream in ((first, reference), (other, candidate)):
            if found.verdict in (Verdict.DIVERGED, Verdict.LENGTH):
                with arms.use(arm_name) as arm:
                    found = unless_unsteady(found, arm, case, stream, floor=floor)
    except ArmError as error:
        return could_not_run(GATE, name, error)
    check = check_of(
        GATE,
        name,
        found,
        seconds=answers.seconds[other, case.name] + time.monotonic() - started,
        manifests={first: reference.manifest, other: candidate.manifest},
        counters={first: reference.counters, other: candidate.counters},
    )
    divergence = Divergence(
        case=case,
        arm=other,
        reference=reference,
        candidate=candidate,
        against=first,
        floor=floor,
        index=found.details.get("index"),
    )
    return triage.of(check, divergence)


def _arrivals(
    claim: str, arm: str, cases: list[Case], answers: _Answers, arms: ArmPool, progress: Callable[[str], None]
) -> Check:
    streams = [answers.streams[arm, case.name] for case in cases if (arm, case.name) in answers.streams]
    name, started = f"identity/{claim}/{arm}/arrivals", time.monotonic()
    errors = [answers.errors[arm, case.name] for case in cases if (arm, case.name) in answers.errors]
    if errors and not streams:
        return could_not_run(GATE, name, errors[0])
    asked = {case.name: case for case in cases}
    found = spread_of(streams)
    if streams and found.verdict is Verdict.INCONCLUSIVE:
        progress(f"identity: {arm} is asked for a longer answer, to see when its pieces arrive")
        try:
            with arms.use(arm) as driven:
                case, stream = _longer(driven, asked, streams)
        except ArmError as error:
            # A prompt and that many tokens may be more than the engine holds: then nothing is known yet.
            arms.drop(arm)
            found = Comparison(
                found.verdict, f"{found.headline} (asked for more: {error.what})", found.details
            )
            return check_of(GATE, name, found, seconds=time.monotonic() - started)
        asked[case.name], streams = case, [*streams, stream]
    try:
        with arms.use(arm) as driven:
            found = _confirmed(driven, asked, streams)
    except ArmError as error:
        arms.drop(arm)
        return could_not_run(GATE, name, error)
    return check_of(GATE, name, found, seconds=time.monotonic() - started, passing=(Verdict.HELD,))


def _longer(arm: Arm, cases: dict[str, Case], streams: list[Stream]) -> tuple[Case, Stream]:
    """The claim's longest answer, asked for with a higher and higher bound until it shows when its pieces arrive, or
    ends before the bound. Raises ArmError."""
    # One that its bound cut off goes on; one that ended by itself will end there again.
    longest = max(streams, key=lambda one: (one.finish_reason == "length", tokens_of(one)))
    case = cases[longest.case]
    bound = max(case.max_tokens, PIECES)
    while True:
        bound = min(LONGER * bound, MOST_TOKENS)
        more = msgspec.structs.replace(
            case, name=f"{case.name}-asked-for-{bound}-tokens", max_tokens=bound, stop=(), constraint=None
        )
        stream = arm.generate(more)
        told = spread_of([stream]).verdict is not Verdict.INCONCLUSIVE
        if told or stream.finish_reason != "length" or bound >= MOST_TOKENS:
            return more, stream


def _confirmed(arm: Arm, cases: dict[str, Case], streams: list[Stream]) -> Comparison:
    """What the arrivals say, a burst only where it comes again: it may have been a reader that was not scheduled."""
    found = spread_of(streams)
    while found.verdict is Verdict.BROKEN:
        worst = found.details["worst"]
        streams = [stream for stream in streams if stream.case != worst]
        for _ in range(REPEATS):
            again = arm.generate(cases[worst])
            repeated = spread_of([again])
            if repeated.verdict is not Verdict.BROKEN:
                break
        else:
            return found
        found = spread_of([*streams, again])
    return found


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every identity claim: its arms are asked side by side, then compared with the first."""
    every = policy.all_cases(root)
    claims = {name: claim for name, claim in policy.claims.items() if isinstance(claim, IdentityClaim)}
    with pool_of(policy, arms) as pool:
        collected = {name: _Answers() for name in claims}
        jobs: list[Job] = []
        for name, claim in claims.items():
            cases = [every[case] for case in claim.cases]
            if not cases:
                yield Check(
                    GATE,
                    f"identity/{name}",
                    Outcome.FAIL,
                    Verdict.NOT_RUN,
                    "the claim has no case: nothing was compared",
                )
            jobs += [partial(_collect, arm, cases, pool, collected[name], progress) for arm in claim.arms]
        try:
            yield from side_by_side(jobs)
        except KeyboardInterrupt:
            yield from _known(claims, collected, every, policy.goldens.margin_floor)
            raise
        triage = Triage(policy, pool, progress)
        for name, claim in claims.items():
            cases = [every[case] for case in claim.cases]
            for arm in claim.arms[1:]:
                for case in cases:
                    yield _judge(name, claim.arms[0], arm, case, collected[name], policy, pool, triage)
            for arm in claim.arms:
                if policy.arms[arm].options.get("streamed"):
                    yield _arrivals(name, arm, cases, collected[name], pool, progress)
