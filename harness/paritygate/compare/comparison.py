"""What a comparison found, as evidence that can be read without the streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paritygate.stream import Position, Stream
from paritygate.verdict import Verdict


@dataclass(frozen=True)
class Comparison:
    """A verdict, one sentence, and the evidence (plain JSON values)."""

    verdict: Verdict
    headline: str
    details: dict[str, Any] = field(default_factory=dict)


def token_evidence(position: Position | None, token_id: int | None) -> dict[str, Any]:
    """One side at one index: the token and its top two alternatives with the gap between them."""
    evidence: dict[str, Any] = {"token_id": token_id, "token": None, "top": [], "gap": None}
    if position is not None:
        evidence["token"] = position.token
        evidence["top"] = [[top.token_id, top.token, top.logprob] for top in position.top[:2]]
        evidence["gap"] = position.gap
    return evidence


def spelled(evidence: dict[str, Any]) -> str:
    """A token as a headline names it."""
    if evidence["token_id"] is None:
        return "nothing"
    text = evidence["token"]
    return f"{text!r} ({evidence['token_id']})" if text is not None else f"token {evidence['token_id']}"


def side_by_side(reference: Stream, candidate: Stream) -> dict[str, Any]:
    """What every comparison records about its two sides."""
    return {
        "reference": {"arm": reference.arm, "text": reference.text, "finish_cause": reference.finish_cause},
        "candidate": {"arm": candidate.arm, "text": candidate.text, "finish_cause": candidate.finish_cause},
    }
