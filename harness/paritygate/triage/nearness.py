"""How far two sides lie apart over the same tokens, by all that both tell: whole distributions, or only their tops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paritygate.compare.envelope import distance
from paritygate.compare.identity import first_difference
from paritygate.logits import log_softmax
from paritygate.stream import Position, Stream

LEAST = (
    1e-12  # of what is left of a distribution beside its top: rounded logprobs may add up to a little over 1
)


def _figures(kl: Sequence[float]) -> dict[str, Any]:
    return {
        "positions": len(kl),
        "kl_mean": float(np.mean(kl)),
        "kl_p99": float(np.quantile(kl, 0.99)),
        "kl_max": float(np.max(kl)),
        "kl_max_at": int(np.argmax(kl)),
    }


def _sentence(told: Mapping[str, Any], between: Sequence[str], over: str) -> str:
    figures = f"mean {told['kl_mean']:.3g}, p99 {told['kl_p99']:.3g}, max {told['kl_max']:.3g}"
    where = f"token {told['kl_max_at']}, {told['positions']} positions"
    return f"KL({between[0]} || {between[1]}) in nats, {over}: {figures} (at {where})"


def of_logits(between: tuple[str, str], reference: np.ndarray, candidate: np.ndarray) -> dict[str, Any]:
    """Teacher-forced logits [positions, vocabulary] of two arms. ValueError where they cannot be compared."""
    told = distance(reference, candidate).to_json()
    over = "teacher-forced, whole vocabulary"
    sentence = f"{_sentence(told, between, over)}; largest |Δlogit| {told['max_abs_logit']:.3g}"
    return {"between": list(between), "over": over, "partial": False} | told | {"sentence": sentence}


def coarse_kl(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    """KL in nats of two distributions given as logprobs of some tokens: those that both tell, and all others as one.

    Merging outcomes can only lower a divergence, so this is a lower bound of the true one.
    """
    shared = ours.keys() & theirs.keys()
    p = [math.exp(ours[token]) for token in shared]
    q = [math.exp(theirs[token]) for token in shared]
    p.append(max(1 - sum(p), LEAST))
    q.append(max(1 - sum(q), LEAST))
    return max(0.0, sum(a * math.log(a / max(b, LEAST)) for a, b in zip(p, q, strict=True)))


def _tops(position: Position) -> dict[int, float]:
    return {top.token_id: top.logprob for top in position.top if top.token_id is not None}


def of_recorded(between: tuple[str, str], reference: Stream, logits: np.ndarray) -> dict[str, Any] | None:
    """Recorded top logprobs against an arm's teacher-forced logits; None where none are recorded."""
    kl = []
    for position, row in zip(reference.positions or (), logits, strict=False):
        logprobs = log_softmax(row)
        kl.append(coarse_kl(_tops(position), {token: float(logprobs[token]) for token in _tops(position)}))
    return _partial(between, kl, "a lower bound: only the recorded top logprobs, teacher-forced")


def of_streams(between: tuple[str, str], reference: Stream, candidate: Stream) -> dict[str, Any] | None:
    """Top logprobs that both streams tell, as far as their tokens agree; None where there are none."""
    fork = first_difference(reference.token_ids or (), candidate.token_ids or ())
    pairs = list(zip(reference.positions or (), candidate.positions or (), strict=False))
    pairs = pairs if fork is None else pairs[: fork + 1]
    kl = [coarse_kl(_tops(a), _tops(b)) for a, b in pairs if a.top and b.top]
    return _partial(between, kl, "a lower bound: only the top logprobs of both answers, up to the fork")


def _partial(between: tuple[str, str], kl: Sequence[float], over: str) -> dict[str, Any] | None:
    if not kl:
        return None
    told = _figures(kl)
    return {
        "between": list(between), "over": over, "partial": True, **told, "sentence": _sentence(told, between, over),
    }  # fmt: skip
