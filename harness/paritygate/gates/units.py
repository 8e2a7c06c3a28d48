"""The units of work of a run: each is kept, reused, or given to a shard as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from paritygate.policy import (
    AbortClaim,
    BatchClaim,
    BoundClaim,
    CacheClaim,
    Claim,
    EnvelopeClaim,
    GoldenClaim,
    HistoryClaim,
    IdentityClaim,
    PartitionClaim,
    Policy,
)
from paritygate.policy.claims import CACHE_SCENARIOS, cache_scenario
from paritygate.policy.needs import envelope_of, named_cases
from paritygate.verdict import Check

# What a member's gates weigh beside an answer.
MEMBER = 40
# What timing in pairs of processes weighs beside an answer, where work is shared out.
TIMED = 60


@dataclass(frozen=True)
class Unit:
    """One gate's work on one arm, or on one claim where its arms are held against each other.

    `name` begins the names of its checks. `expected` holds beginnings of names that the unit must show checks for;
    a unit that expects nothing is never reused. `answers` is about how many answers it asks for. `folder`, relative to
    the root, is one on all of whose files it depends.
    """

    name: str
    gate: str
    claims: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    answers: int = 0
    folder: str = ""

    @property
    def reusable(self) -> bool:
        """Whether a pass can be kept; rules read the tree anyway, and a time holds for its moment alone."""
        return bool(self.expected)

    def complete(self, checks: Iterable[Check]) -> bool:
        """Whether the checks are this unit's, and show all that it must."""
        names = [check.name for check in checks]
        return all(name.startswith(f"{self.name}/") for name in names) and all(
            any(name == wanted or name.startswith(f"{wanted}/") for name in names) for wanted in self.expected
        )


def _by_arm(gate: str, claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    arms = dict.fromkeys(arm for claim in claims.values() for arm in claim.arms)
    units = []
    for arm in arms:
        named = {name: claim for name, claim in claims.items() if arm in claim.arms}
        cases = tuple(dict.fromkeys(case for claim in named.values() for case in (claim.cases or every)))  # type: ignore[union-attr]
        name = f"{gate}/{arm}"
        expected = tuple(f"{name}/{part}" for part in cases)
        units.append(Unit(name, gate, tuple(named), (arm,), cases, expected, len(cases)))
    return units


def _golden(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    # The first is the store's own check, which reads every golden and runs no engine.
    units = [Unit("golden", "golden")]
    for unit in _by_arm("golden", claims, every):
        measured = [name for name in unit.claims if envelope_of(claims[name]) and unit.cases]
        logprobs = tuple(f"{unit.name}/{name}/logprobs" for name in measured)
        units.append(replace(unit, expected=unit.expected + logprobs))
    return units


def _history(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    return _by_arm("history", claims, ())


def _identity(claim: IdentityClaim) -> list[str]:
    return [f"{arm}/{case}" for arm in claim.arms[1:] for case in claim.cases]


def _cache(claim: CacheClaim) -> list[str]:
    # A case that is repeated is asked for a hit and a second one, one that was pushed out again, and for a hit.
    return [
        f"{cache_scenario(key, case)}{part}"
        for key in CACHE_SCENARIOS
        for case in getattr(claim, key)
        for part in {"repeat": ("/hit", "/second-hit"), "evicted": ("/again", "/hit")}.get(key, ("",))
    ]


def _whole(
    gate: str,
    shows: Callable[[Any], Sequence[str]],
    answers: Callable[[Any], int],
    claims: dict[str, Claim],
    every: tuple[str, ...],
) -> list[Unit]:
    """A unit for each claim, whose arms are held against each other."""
    units = []
    for claim_name, claim in claims.items():
        name = f"{gate}/{claim_name}"
        expected = tuple(f"{name}/{part}" for part in shows(claim))
        cases = tuple(dict.fromkeys(named_cases(claim)))
        units.append(Unit(name, gate, (claim_name,), claim.arms, cases, expected, answers(claim)))
    return units


def _each_arm(
    gate: str,
    shows: Callable[[Any], Sequence[str]],
    answers: Callable[[Any], int],
    claims: dict[str, Claim],
    every: tuple[str, ...],
) -> list[Unit]:
    """A unit for each arm of each claim."""
    units = []
    for claim_name, claim in claims.items():
        for arm in claim.arms:
            name = f"{gate}/{claim_name}/{arm}"
            expected = tuple(f"{name}/{part}" for part in shows(claim))
            cases = tuple(dict.fromkeys(named_cases(claim)))
            units.append(Unit(name, gate, (claim_name,), (arm,), cases, expected, answers(claim)))
    return units


# By gate: the kind of its claims, and what makes their units; a check's name begins with its unit's.
KINDS: dict[str, tuple[type[Claim], Callable[[dict[str, Claim], tuple[str, ...]], list[Unit]]]] = {
    "golden": (GoldenClaim, _golden),
    "identity": (IdentityClaim, partial(_whole, "identity", _identity, lambda c: len(c.arms) * len(c.cases))),
    "cache": (CacheClaim, partial(_each_arm, "cache", _cache, lambda c: 3 * len(_cache(c)))),
    "envelope": (EnvelopeClaim, partial(_whole, "envelope", lambda c: c.cases, lambda c: 2 * len(c.cases))),
    "partition": (
        PartitionClaim,
        partial(_each_arm, "partition", lambda c: c.cases, lambda c: len(c.cases) * (1 + len(c.sizes))),
    ),
    "history": (HistoryClaim, _history),
    "batch": (BatchClaim, partial(_each_arm, "batch", lambda c: c.cases, lambda c: 2 * len(c.cases))),
    "abort": (AbortClaim, partial(_each_arm, "abort", lambda c: (c.case,), lambda c: c.times)),
    "bound": (BoundClaim, partial(_each_arm, "bound", lambda c: ("limit",), lambda c: len(c.cases))),
}


def member_units(members: Iterable[str]) -> list[Unit]:
    """A unit for each member."""
    return [
        Unit(
            f"members/{member}",
            "members",
            expected=(f"members/{member}/gates",),
            answers=MEMBER,
            folder=member,
        )
        for member in members
    ]


def units_of(
    policy: Policy, gates: Iterable[str], golden_cases: tuple[str, ...], members: tuple[str, ...] = ()
) -> tuple[Unit, ...]:
    """The units of the gates, in order; a gate that is not made of claims is one unit of its own name."""
    units: list[Unit] = []
    for gate in gates:
        if gate == "members":
            units += member_units(members)
            continue
        if gate not in KINDS:
            units.append(Unit(gate, gate, answers=0 if gate == "structure" else TIMED))
            continue
        kind, made = KINDS[gate]
        claims = {name: claim for name, claim in policy.claims.items() if isinstance(claim, kind)}
        units += made(claims, golden_cases)
    return tuple(units)


def narrowed(policy: Policy, units: Iterable[Unit]) -> Policy:
    """The policy with the claims and arms of these units and no other."""
    wanted = {(claim, arm) for unit in units for claim in unit.claims for arm in unit.arms}
    claims = {}
    for name, claim in policy.claims.items():
        arms = tuple(arm for arm in claim.arms if (name, arm) in wanted)
        if arms:
            claims[name] = msgspec.structs.replace(claim, arms=arms)
    return msgspec.structs.replace(policy, claims=claims)


def by_unit(checks: Iterable[Check], units: Iterable[Unit]) -> dict[str, list[Check]]:
    """The checks of each unit by its name; a check belongs to the unit with the longest name that begins its own."""
    names = sorted((unit.name for unit in units), key=len, reverse=True)
    found: dict[str, list[Check]] = {name: [] for name in names}
    for check in checks:
        owner = next((name for name in names if check.name.startswith(f"{name}/")), None)
        if owner is not None:
            found[owner].append(check)
    return found
