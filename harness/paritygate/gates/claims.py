"""A gate's claims, each arm of each in a lane of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from paritygate.gates.arm_pool import ArmPool, pool_of
from paritygate.gates.lanes import side_by_side
from paritygate.policy import Claim, Policy
from paritygate.verdict import Check

Kind = TypeVar("Kind", bound=Claim)


def every_arm(
    policy: Policy,
    kind: type[Kind],
    arms: ArmPool | None,
    checks: Callable[[str, Kind, str, ArmPool], Iterator[Check]],
) -> Iterator[Check]:
    """`checks(claim's name, claim, arm's name, pool)` for every arm of every claim of a kind, side by side."""
    claims = {name: claim for name, claim in policy.claims.items() if isinstance(claim, kind)}
    with pool_of(policy, arms) as pool:
        yield from side_by_side(
            [partial(checks, name, claim, arm, pool) for name, claim in claims.items() for arm in claim.arms]
        )
