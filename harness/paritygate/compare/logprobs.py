"""How near two answers' reported logprobs are."""

from __future__ import annotations

from paritygate.stream import Stream


def logprob_distance(reference: Stream, candidate: Stream) -> float | None:
    """The largest |Δ| of a logprob that both report, over all positions; None where nothing can be compared."""
    found = [
        abs(a.logprob - b.logprob)
        for ours, theirs in zip(reference.positions or (), candidate.positions or (), strict=False)
        for a in ours.top
        for b in theirs.top
        if a.token_id == b.token_id
    ]
    return max(found) if found else None
