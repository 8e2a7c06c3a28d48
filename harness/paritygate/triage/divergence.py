"""What a gate hands over when two sides differ."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

from paritygate.arms.base import Arm
from paritygate.case import Case
from paritygate.golden.golden import Provenance
from paritygate.policy import Envelope
from paritygate.stream import Stream

Use = Callable[[str], AbstractContextManager[Arm]]


def no_witness() -> None:
    """Nobody can be asked in a golden's place."""


@dataclass(frozen=True)
class Divergence:
    """Two streams of a case that differ, and how to ask again.

    `arm` said `candidate`. The reference was said by the arm `against`, or, where that is None, by the oracles of a
    golden; `witness` names another arm that can be asked in their place, when it comes to that. In a cache divergence
    both streams are of one arm: the reference cold, the candidate with state to reuse, left by `before` (by the case
    itself where None). `envelope` is the tolerance registered for these two ways to compute, None where they must be
    equal.
    """

    case: Case
    arm: str
    reference: Stream
    candidate: Stream | None
    against: str | None = None
    witness: Callable[[], str | None] = no_witness
    cached: bool = False
    before: Case | None = None
    envelope: Envelope | None = None
    floor: float = 0.0
    index: int | None = None  # of the token at which they fork
    recorded: Provenance | None = None  # who said a golden's reference

    @cached_property
    def other(self) -> str | None:
        """The arm that can be asked for the other side."""
        return self.against or self.witness()

    @property
    def prompt(self) -> tuple[int, ...]:
        """The prompt's tokens, () where no side tells them."""
        told = self.reference.prompt_token_ids
        if told is None and self.candidate is not None:
            told = self.candidate.prompt_token_ids
        return told or ()

    @property
    def said(self) -> tuple[int, ...]:
        return self.reference.token_ids or ()

    @property
    def same_answer(self) -> bool:
        """Whether both sides told the same tokens and text, so that only what else they tell differs."""
        if self.candidate is None or self.reference.token_ids is None:
            return False
        ours, theirs = ((side.token_ids, side.text) for side in (self.reference, self.candidate))
        return ours == theirs

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is what each side says: nothing is drawn and nothing penalised."""
        return set(self.case.sampler.given()) <= {"temperature", "seed"} and not self.case.sampler.temperature
