"""Near-ties: feed the reference's tokens, look where an arm would say another, and whether each place was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from paritygate.arms.base import Arm
from paritygate.stream import Stream


@dataclass(frozen=True)
class Fork:
    """A position at which the arm, fed the reference so far, prefers another token."""

    index: int
    reference_id: int
    arm_id: int
    reference_gap: float | None
    arm_gap: float

    def tie(self, floor: float) -> bool:
        """Whether neither side decides: both gaps (as far as known) are below the floor, and rounding may choose."""
        return self.arm_gap < floor and (self.reference_gap is None or self.reference_gap < floor)


@dataclass(frozen=True)
class Reanchored:
    """The whole answer, teacher-forced: every fork from the first on, of `positions` looked at."""

    positions: int
    forks: tuple[Fork, ...]
    floor: float

    @property
    def all_ties(self) -> bool:
        return all(fork.tie(self.floor) for fork in self.forks)

    def evidence(self) -> dict[str, Any]:
        return {
            "positions": self.positions,
            "forks": [
                {
                    "index": fork.index,
                    "reference_id": fork.reference_id,
                    "arm_id": fork.arm_id,
                    "gaps": [fork.reference_gap, fork.arm_gap],
                    "tie": fork.tie(self.floor),
                }
                for fork in self.forks
            ],
        }

    def sentence(self) -> str:
        if not self.forks:
            return f"fed the reference's tokens, the arm agrees at all {self.positions} positions"
        ties = sum(fork.tie(self.floor) for fork in self.forks)
        return (
            f"fed the reference's tokens, the arm forks at {len(self.forks)} of {self.positions} positions, "
            f"{ties} of them near-ties"
        )


def forks_of(reference: Stream, logits: np.ndarray) -> tuple[Fork, ...]:
    """Forks of teacher-forced logits [tokens, vocabulary], row i being what decides token i of the reference."""
    found = []
    for index, token_id in enumerate(reference.token_ids or ()):
        row = logits[index]
        chosen = int(row.argmax())
        if chosen != token_id:
            second = float(np.partition(row, -2)[-2])
            position = reference.position(index)
            found.append(
                Fork(index, token_id, chosen, position.gap if position else None, float(row[chosen]) - second)
            )
    return tuple(found)


def reanchor(arm: Arm, reference: Stream, floor: float) -> Reanchored:
    """Teacher-force the reference through the arm. Raises ArmError; the reference must hold tokens and prompt."""
    prompt, said = reference.prompt_token_ids or (), reference.token_ids or ()
    logits = arm.logits(prompt + said[:-1], len(prompt) - 1)
    return Reanchored(len(said), forks_of(reference, logits), floor)
