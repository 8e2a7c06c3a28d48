"""How near two answers' reported logprobs are."""

from __future__ import annotations

from paritygate.stream import Stream, TopToken


def _same_token(ours: TopToken, theirs: TopToken) -> bool:
    """By id; by text where a side tells no ids, and the text is a whole one that only one token has."""
    if None not in (ours.token_id, theirs.token_id):
        return ours.token_id == theirs.token_id
    return ours.token == theirs.token and bool(ours.token) and "\ufffd" not in ours.token


def logprob_distance(reference: Stream, candidate: Stream) -> float | None:
    """The largest |Δ| of a logprob that both report, over all positions; None where nothing can be compared."""
    found = [
        abs(a.logprob - b.logprob)
        for ours, theirs in zip(reference.positions or (), candidate.positions or (), strict=False)
        for a in ours.top
        for b in theirs.top
        if _same_token(a, b)
    ]
    return max(found) if found else None
