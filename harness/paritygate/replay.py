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
from paritygate.policy import CacheClaim, Claim, GoldenClaim, HistoryClaim, Policy
from paritygate.policy.claims import CACHE_SCENARIOS, cache_scenario
from paritygate.policy.needs import named_cases
from paritygate.triage.settings import TriagePolicy
from paritygate.verdict import Check

Progress = Callable[[str], None]
# Gates whose claims are played whole on one arm: a row of a batch needs the rows beside it.
ROWS = ("batch", "abort", "bound")


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


def narrowed(policy: Policy, check: str) -> tuple[str, Policy, str]:
    """The gate, the policy with the one claim that makes the check, and its case. Raises NoSuchCheck."""
    gate, *rest = check.split("/")
    shapes = {"golden": 2, "history": 2, "envelope": 2, "identity": 3, "cache": 4} | dict.fromkeys(ROWS, 3)
    if shapes.get(gate) != len(rest):
        raise NoSuchCheck(
            f"{check!r} is no check that can be replayed: give its name as `paritygate verify` printed it, "
            f"such as identity/CLAIM/ARM/CASE"
        )
    claims: dict[str, Claim] = {}
    found = ""
    for name, claim in policy.claims.items():
        if not isinstance(claim, KINDS[gate][0]):
            continue
        one: Claim | None = None
        if isinstance(claim, GoldenClaim | HistoryClaim):
            arm, found = rest
            if arm in claim.arms and found in (claim.cases or (found,)):
                one = msgspec.structs.replace(claim, arms=(arm,), cases=(found,))
        elif name == rest[0] and gate == "envelope":
            found = rest[1]
            one = msgspec.structs.replace(claim, cases=(found,))
        elif name == rest[0] and gate == "identity" and rest[1] in claim.arms[1:]:
            found = rest[2]
            one = msgspec.structs.replace(claim, arms=(claim.arms[0], rest[1]), cases=(found,))
        elif name == rest[0] and isinstance(claim, CacheClaim) and rest[1] in claim.arms:
            alone = msgspec.structs.replace(claim, arms=(rest[1],))
            if played := _of_cache(alone, rest[2]):
                one, found = played
        elif name == rest[0] and gate in ROWS and rest[1] in claim.arms:
            held = named_cases(claim)
            found = held[0] if gate == "bound" else rest[2]
            one = msgspec.structs.replace(claim, arms=(rest[1],)) if found in held else None
        if one is not None:
            claims[name] = one
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
    gate, alone, name = narrowed(policy, check)
    cases = policy.all_cases(root)
    if name not in cases:
        raise NoSuchCheck(f"no case is named {name!r}")
    if token_ids or max_tokens is not None:
        if gate in ("golden", "envelope"):
            raise NoSuchCheck(f"{check}: a golden knows its own prompt alone; name two arms instead")
        if gate == "bound":
            raise NoSuchCheck(f"{check}: is about many prompts: leave token ids and max tokens out")
        asked = _bounded(cases[name], token_ids, max_tokens)
        # A policy's own case hides the recorded one of that name.
        alone = msgspec.structs.replace(alone, cases=(*(c for c in alone.cases if c.name != name), asked))
    if not triage:
        alone = msgspec.structs.replace(alone, triage=TriagePolicy(checks=0))
    for told in PARITY[gate](alone, root, progress, None):
        # A setup that failed has another name than the check that it prevented.
        if told.name == check or told.name.endswith("/setup"):
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
