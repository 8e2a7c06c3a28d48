"""One check of the policy again, or one prompt on two arms: what a report's commands run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from paritygate.arms.base import ArmError
from paritygate.case import Case
from paritygate.compare.identity import SETTINGS, compare
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.replies import check_of, could_not_run
from paritygate.gates.run import PARITY
from paritygate.gates.units import KINDS
from paritygate.policy import (
    CacheClaim,
    Claim,
    EnvelopeClaim,
    GoldenClaim,
    HistoryClaim,
    IdentityClaim,
    Policy,
)
from paritygate.policy.claims import CACHE_SCENARIOS, cache_scenario
from paritygate.policy.needs import named_cases
from paritygate.triage.settings import TriagePolicy
from paritygate.verdict import Check, Outcome

Progress = Callable[[str], None]
# Gates whose claims are played whole on one arm: a row of a batch needs the rows beside it.
EACH_ARM = ("partition", "batch", "abort", "bound")
# Gates whose checks are named by arm and case, without their claim.
BY_ARM = ("golden", "history")
# Checks that are about all answers of an arm to a claim's cases, by the last part of their names.
OF_ALL_CASES = {"golden": ("logprobs", "work", "remaining"), "identity": ("arrivals",)}


class NoSuchCheck(Exception):
    """A name that no claim of the policy makes; the message says what such a name looks like."""


def _bounded(case: Case, token_ids: tuple[int, ...], max_tokens: int | None) -> Case:
    asked = case.with_token_ids(token_ids) if token_ids else case
    return asked if max_tokens is None else msgspec.structs.replace(asked, max_tokens=max_tokens)


def _of_cache(claim: CacheClaim, scenario: str) -> tuple[CacheClaim, str] | None:
    for key in CACHE_SCENARIOS:
        for case in getattr(claim, key):
            if scenario == cache_scenario(key, case):
                narrowed = dict.fromkeys(CACHE_SCENARIOS, ()) | {key: (case,)}
                return msgspec.structs.replace(claim, **narrowed), case
    return None


def _one_case(claim: Claim, gate: str, rest: list[str]) -> tuple[Claim, str] | None:
    """The claim with what makes the check of one case, and the case; `rest` is the check's name after its gate."""
    if isinstance(claim, GoldenClaim | HistoryClaim):
        arm, case = rest
        if arm in claim.arms and case in (claim.cases or (case,)):
            return msgspec.structs.replace(claim, arms=(arm,), cases=(case,)), case
    elif isinstance(claim, EnvelopeClaim):
        return msgspec.structs.replace(claim, cases=(rest[1],)), rest[1]
    elif isinstance(claim, IdentityClaim):
        if rest[1] in claim.arms[1:]:
            return msgspec.structs.replace(claim, arms=(claim.arms[0], rest[1]), cases=(rest[2],)), rest[2]
    elif rest[1] not in claim.arms:
        return None
    elif isinstance(claim, CacheClaim):
        return _of_cache(msgspec.structs.replace(claim, arms=(rest[1],)), rest[2])
    elif gate in EACH_ARM:
        held = named_cases(claim)
        case = held[0] if gate == "bound" else rest[2]
        return (msgspec.structs.replace(claim, arms=(rest[1],)), case) if case in held else None
    return None


def _all_cases(name: str, claim: Claim, gate: str, rest: list[str]) -> Claim | None:
    """The claim on the one arm of a check that is about all of the arm's answers; None for any other check."""
    if len(rest) != 3 or rest[2] not in OF_ALL_CASES.get(gate, ()):
        return None
    of_claim, arm = (rest[1], rest[0]) if gate == "golden" else (rest[0], rest[1])
    if name != of_claim or arm not in claim.arms or rest[2] in named_cases(claim):
        return None
    return msgspec.structs.replace(claim, arms=(arm,))


def narrowed(policy: Policy, check: str) -> tuple[str, Policy, str]:
    """The gate, the policy with the one claim that makes the check, and its case, "" where it is about all of them.

    Raises NoSuchCheck.
    """
    gate, *rest = check.split("/")
    shapes = {"golden": 2, "history": 2, "envelope": 2, "identity": 3, "cache": 4} | dict.fromkeys(
        EACH_ARM, 3
    )
    whole = len(rest) == 3 and rest[2] in OF_ALL_CASES.get(gate, ())
    if shapes.get(gate) != len(rest) and not whole:
        raise NoSuchCheck(
            f"{check!r} is no check that can be replayed: give its name as `paritygate verify` printed it, "
            f"such as identity/CLAIM/ARM/CASE"
        )
    claims: dict[str, Claim] = {}
    found = ""
    for name, claim in policy.claims.items():
        if not isinstance(claim, KINDS[gate][0]):
            continue
        if whole and (on_arm := _all_cases(name, claim, gate, rest)) is not None:
            claims[name] = on_arm
        elif shapes[gate] == len(rest) and (gate in BY_ARM or name == rest[0]):
            one = _one_case(claim, gate, rest)
            if one is not None:
                claims[name], found = one
    if not claims:
        raise NoSuchCheck(f"no claim of this policy makes a check named {check!r}")
    return gate, msgspec.structs.replace(policy, claims=claims), found


def check_again(
    policy: Policy,
    root: Path,
    check: str,
    progress: Progress,
    *,
    token_ids: tuple[int, ...] = (),
    max_tokens: int | None = None,
    triage: bool = False,
) -> Iterator[Check]:
    """The check, run alone; with `token_ids` its case has that prompt. Raises NoSuchCheck."""
    for member in policy.members.found(root):
        if check.startswith(f"members/{member}/"):
            again = msgspec.structs.replace(
                policy.invocation, root=str(Path(policy.invocation.root) / member)
            )
            own = check.removeprefix(f"members/{member}/")
            words = ("verify",) if own == "gates" else ("replay", own)
            raise NoSuchCheck(f"{check} is a member's own check: {again.command(*words)}")
    gate, alone, name = narrowed(policy, check)
    cases = policy.all_cases(root)
    if name and name not in cases:
        raise NoSuchCheck(f"no case is named {name!r}")
    if token_ids or max_tokens is not None:
        if gate in ("golden", "envelope"):
            raise NoSuchCheck(f"{check}: a golden knows its own prompt alone; name two arms instead")
        if gate == "bound" or not name:
            raise NoSuchCheck(f"{check}: is about many prompts: leave token ids and max tokens out")
        asked = _bounded(cases[name], token_ids, max_tokens)
        # A policy's own case hides the recorded one of that name.
        alone = msgspec.structs.replace(alone, cases=(*(c for c in alone.cases if c.name != name), asked))
    if not triage:
        alone = msgspec.structs.replace(alone, triage=TriagePolicy(checks=0))
    for told in PARITY[gate](alone, root, progress, None):
        # A setup that failed has another name than the check that it prevented.
        prevented = told.name.endswith("/setup") or (not name and told.outcome is Outcome.COULD_NOT_RUN)
        if told.name == check or prevented:
            yield told


def two_arms(
    policy: Policy,
    case: Case,
    arms: tuple[str, str],
    *,
    token_ids: tuple[int, ...] = (),
    max_tokens: int | None = None,
) -> Check:
    """One case on two arms, the first the reference; they may compute in different ways."""
    asked = _bounded(case, token_ids, max_tokens)
    name = f"replay/{arms[0]}/{arms[1]}/{case.name}"
    try:
        with ArmPool(policy) as pool:
            streams = []
            for arm_name in arms:
                with pool.use(arm_name) as arm:
                    streams.append(arm.generate(asked))
    except ArmError as error:
        return could_not_run("replay", name, error)
    found = compare(*streams, floor=policy.goldens.margin_floor, settings=SETTINGS)
    return check_of("replay", name, found, seconds=0.0)
