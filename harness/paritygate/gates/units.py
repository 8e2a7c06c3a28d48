"""The units of work of a run: each is kept, reused, or given to a shard as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

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
    Policy,
)
from paritygate.policy.needs import envelope_of
from paritygate.verdict import Check

# What timing in pairs of processes weighs beside an answer, where work is shared out.
TIMED = 60


@dataclass(frozen=True)
class Unit:
    """One gate's work on one arm, or on one claim where its arms are held against each other.

    `name` begins the names of its checks. `expected` holds beginnings of names that the unit must show checks for;
    a unit that expects nothing is never reused. `answers` is about how many answers it asks for.
    """

    name: str
    gate: str
    claims: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    answers: int = 0

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


def _by_arm(gate: str, claims: dict[str, Claim], every: tuple[str, ...], more: tuple[str, ...]) -> list[Unit]:
    arms = dict.fromkeys(arm for claim in claims.values() for arm in claim.arms)
    units = []
    for arm in arms:
        named = {name: claim for name, claim in claims.items() if arm in claim.arms}
        cases = tuple(dict.fromkeys(case for claim in named.values() for case in (claim.cases or every)))  # type: ignore[union-attr]
        name = f"{gate}/{arm}"
        expected = tuple(f"{name}/{part}" for part in (*cases, *more)) if cases else ()
        units.append(Unit(name, gate, tuple(named), (arm,), cases, expected, len(cases)))
    return units


def _golden(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    # The first is the store's own check, which reads every golden and runs no engine.
    units = [Unit("golden", "golden")]
    for unit in _by_arm("golden", claims, every, ()):
        measured = [name for name in unit.claims if envelope_of(claims[name]) and unit.cases]
        logprobs = tuple(f"{unit.name}/{name}/logprobs" for name in measured)
        units.append(replace(unit, expected=unit.expected + logprobs))
    return units


def _history(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    return _by_arm("history", claims, (), ())


def _identity(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    units = []
    for claim_name, claim in claims.items():
        assert isinstance(claim, IdentityClaim)
        name = f"identity/{claim_name}"
        expected = tuple(f"{name}/{arm}/{case}" for arm in claim.arms[1:] for case in claim.cases)
        answers = len(claim.arms) * len(claim.cases)
        units.append(Unit(name, "identity", (claim_name,), claim.arms, claim.cases, expected, answers))
    return units


def _envelope(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    units = []
    for claim_name, claim in claims.items():
        assert isinstance(claim, EnvelopeClaim)
        name = f"envelope/{claim_name}"
        expected = tuple(f"{name}/{case}" for case in claim.cases)
        units.append(
            Unit(name, "envelope", (claim_name,), claim.arms, claim.cases, expected, 2 * len(claim.cases))
        )
    return units


def _cache(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    units = []
    for claim_name, claim in claims.items():
        assert isinstance(claim, CacheClaim)
        scenarios = (
            *((case, f"{case}/{hit}") for case in claim.repeat for hit in ("hit", "second-hit")),
            *((case, f"{case}-next-turn") for case in claim.turns),
            *((case, f"{case}-shorter-after-longer") for case in claim.shorter_after_longer),
            *((case, f"{case}-changed-end") for case in claim.changed_end),
        )
        cases = tuple(dict.fromkeys(case for case, _ in scenarios))
        for arm in claim.arms:
            name = f"cache/{claim_name}/{arm}"
            expected = tuple(f"{name}/{scenario}" for _, scenario in scenarios)
            units.append(Unit(name, "cache", (claim_name,), (arm,), cases, expected, 3 * len(scenarios)))
    return units


def _batch(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    units = []
    for claim_name, claim in claims.items():
        assert isinstance(claim, BatchClaim)
        for arm in claim.arms:
            name = f"batch/{claim_name}/{arm}"
            expected = tuple(f"{name}/{case}" for case in claim.cases)
            units.append(
                Unit(name, "batch", (claim_name,), (arm,), claim.cases, expected, 2 * len(claim.cases))
            )
    return units


def _abort(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    units = []
    for claim_name, claim in claims.items():
        assert isinstance(claim, AbortClaim)
        for arm in claim.arms:
            name = f"abort/{claim_name}/{arm}"
            expected = (f"{name}/{claim.case}",)
            units.append(Unit(name, "abort", (claim_name,), (arm,), (claim.case,), expected, claim.times))
    return units


def _bound(claims: dict[str, Claim], every: tuple[str, ...]) -> list[Unit]:
    units = []
    for claim_name, claim in claims.items():
        assert isinstance(claim, BoundClaim)
        for arm in claim.arms:
            name = f"bound/{claim_name}/{arm}"
            units.append(
                Unit(name, "bound", (claim_name,), (arm,), claim.cases, (f"{name}/limit",), len(claim.cases))
            )
    return units


KINDS = {
    "golden": (GoldenClaim, _golden),
    "identity": (IdentityClaim, _identity),
    "cache": (CacheClaim, _cache),
    "envelope": (EnvelopeClaim, _envelope),
    "history": (HistoryClaim, _history),
    "batch": (BatchClaim, _batch),
    "abort": (AbortClaim, _abort),
    "bound": (BoundClaim, _bound),
}


def units_of(policy: Policy, gates: Iterable[str], golden_cases: tuple[str, ...]) -> tuple[Unit, ...]:
    """The units of the gates, in order; a gate that is not made of claims is one unit of its own name."""
    units: list[Unit] = []
    for gate in gates:
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
