"""Where a prompt is cut into forwards. No other file computes a boundary.

A plan is a function of the prompt alone, never of what a cache holds: pieces end at absolute multiples of one size,
at the ends of a chat's messages, and before the last token. A hit is rounded down to a split point of the cold plan
and then runs exactly the forwards that a cold run would have run from there; so a hit says what a cold run says, bit
for bit, and not merely within a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

# Tokens in one piece; docs/decisions has the measurement.
PREFILL_SIZE = 256


@dataclass(frozen=True)
class Piece:
    """One forward over prompt tokens [start, stop)."""

    start: int
    stop: int

    @property
    def tokens(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class PrefillPlan:
    """`split_points` are the ends of the cold plan's pieces, ascending; the last one is the prompt's length."""

    split_points: tuple[int, ...]
    start: int = 0

    @classmethod
    def of(
        cls,
        prompt_tokens: int,
        message_ends: Iterable[int] = (),
        *,
        size: int = PREFILL_SIZE,
        can_chunk: bool = True,
        embedding_input: bool = False,
    ) -> PrefillPlan:
        """The cold plan. Embedding input, and a family that cannot chunk, is one piece."""
        if prompt_tokens < 1:
            raise ValueError("a prompt has at least one token")
        if embedding_input or not can_chunk:
            return cls((prompt_tokens,))
        splits = set(range(size, prompt_tokens, size))
        splits.update(end for end in message_ends if 0 < end < prompt_tokens)
        splits.update((prompt_tokens - 1, prompt_tokens))
        splits.discard(0)
        return cls(tuple(sorted(splits)))

    @classmethod
    def even(cls, tokens: int, size: int | None) -> PrefillPlan:
        """Pieces of one size and what is left, None for one forward: for teacher forcing, which stores nothing."""
        points = set(() if size is None else range(size, tokens, size))
        return cls(tuple(sorted({*points, tokens})))

    @property
    def prompt_tokens(self) -> int:
        return self.split_points[-1]

    def pieces(self) -> list[Piece]:
        """What is left to run, in order."""
        points = (self.start, *(p for p in self.split_points if p > self.start))
        return [Piece(a, b) for a, b in pairwise(points)]

    def after_hit(self, tokens: int) -> PrefillPlan:
        """The rest of the plan once `tokens`, a split point short of the whole prompt, were adopted."""
        if tokens and (tokens not in self.split_points or tokens == self.prompt_tokens):
            raise ValueError(f"{tokens} is not a split point that leaves something to run")
        return PrefillPlan(self.split_points, tokens)

    def storable_pieces(self) -> list[Piece]:
        """The cold run's pieces whose state a later prompt may adopt: all but the last, so that a hit leaves something
        to run. A prompt that is cut alike up to some end, over the same tokens, runs the same forwards up to there."""
        return [Piece(a, b) for a, b in pairwise((0, *self.split_points[:-1]))]
