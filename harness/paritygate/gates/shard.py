"""A share of a run's units: every unit in exactly one shard, the same split wherever it is computed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from paritygate.gates.units import Unit

# What starting an arm weighs, in answers; it decides how even the shares are and nothing else.
START = 6


class ShardError(Exception):
    """A share that cannot be had; the message says which can."""


@dataclass(frozen=True)
class Shard:
    """Share `index` of `count`, from 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """From `i/n`. Raises ShardError."""
        found = re.fullmatch(r"([0-9]+)/([0-9]+)", text.strip())
        if not found or not 1 <= int(found.group(1)) <= int(found.group(2)):
            raise ShardError(f"--shard {text}: write i/n with i from 1 to n, like 2/4")
        return cls(int(found.group(1)), int(found.group(2)))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def of(self, units: Sequence[Unit]) -> tuple[Unit, ...]:
        """The units of this share, in their order. Raises ShardError where some share would be empty."""
        if self.count > len(units):
            raise ShardError(
                f"--shard {self}: there are {len(units)} units of work ({', '.join(u.name for u in units)}), "
                f"so some shard would test nothing: use at most {max(1, len(units))} shards"
            )
        return split(units, self.count)[self.index - 1]


def _weight(unit: Unit) -> tuple[int, str]:
    # Heaviest first; among equals a hash, so that a policy's order does not put like beside like.
    return -(unit.answers + START * len(unit.arms)), hashlib.sha256(unit.name.encode()).hexdigest()


def split(units: Sequence[Unit], count: int) -> list[tuple[Unit, ...]]:
    """Shares that are about even, with each arm in few of them; none is empty where there are units enough.

    Heaviest unit first, each goes where it ends soonest: an arm that a share starts anyway costs it nothing more.
    """
    shares: list[list[Unit]] = [[] for _ in range(count)]
    started: list[set[str]] = [set() for _ in range(count)]
    loads = [0] * count
    left = len(units)
    for unit in sorted(units, key=_weight):
        costs = [
            load + unit.answers + START * len(set(unit.arms) - arms)
            for load, arms in zip(loads, started, strict=True)
        ]
        empty = [index for index, share in enumerate(shares) if not share]
        choices = empty if len(empty) >= left else range(count)
        best = min(choices, key=lambda index: (costs[index], index))
        shares[best].append(unit)
        loads[best] = costs[best]
        started[best] |= set(unit.arms)
        left -= 1
    return [tuple(unit for unit in units if unit in share) for share in shares]
