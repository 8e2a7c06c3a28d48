"""How near two answers' reported logprobs are."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from paritygate.stream import Stream, TopToken


def _same_token(ours: TopToken, theirs: TopToken) -> bool:
    """By id; by text where a side tells no ids, and the text is a whole one that only one token has."""
    if None not in (ours.token_id, theirs.token_id):
        return ours.token_id == theirs.token_id
    return ours.token == theirs.token and bool(ours.token) and "\ufffd" not in ours.token


@dataclass(frozen=True)
class LogprobDifference:
    """One token to which both sides give a logprob at a position: `logprobs` are the reference's and the other's."""

    index: int
    token: str
    token_id: int | None
    logprobs: tuple[float, float]

    @property
    def distance(self) -> float:
        """|Δ|; two that are minus infinity are equal."""
        ours, theirs = self.logprobs
        return 0.0 if ours == theirs else abs(ours - theirs)

    def outside(self, limit: float) -> str:
        """What a verdict says of a difference that is above its limit: where, both values, and the limit."""
        ours, theirs = self.logprobs
        number = "" if self.token_id is None else f" ({self.token_id})"
        return (
            f"at token {self.index} the logprob of {self.token!r}{number} is {theirs:.6g} where {ours:.6g} is "
            f"expected: {self.distance:.3g} apart, {limit:g} is allowed"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"distance": self.distance}


def largest_difference(reference: Stream, candidate: Stream) -> LogprobDifference | None:
    """The largest difference of a logprob that both report, over all positions; None where nothing can be compared."""
    found = [
        LogprobDifference(index, a.token or b.token, a.token_id, (a.logprob, b.logprob))
        for index, (ours, theirs) in enumerate(
            zip(reference.positions or (), candidate.positions or (), strict=False)
        )
        for a in ours.top
        for b in theirs.top
        if _same_token(a, b)
    ]
    # What is no number is worse than every distance.
    return max(found, key=lambda one: math.inf if math.isnan(one.distance) else one.distance, default=None)
