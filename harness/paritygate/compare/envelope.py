"""How far two sets of logits over the same tokens lie apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from paritygate.logits import log_softmax


@dataclass(frozen=True)
class Distance:
    """Over positions: KL(reference || candidate) in nats, |Δlogit|, and where the largest lie."""

    positions: int
    kl_mean: float
    kl_p99: float
    kl_max: float
    kl_max_at: int
    max_abs_logit: float
    max_abs_logit_at: int
    argmax_changes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def distance(reference: np.ndarray, candidate: np.ndarray) -> Distance:
    """The distance of logits [positions, vocabulary]. ValueError where they are not comparable, or not numbers."""
    if reference.shape != candidate.shape or reference.ndim != 2 or 0 in reference.shape:
        raise ValueError(f"logits of shape {reference.shape} cannot be compared with {candidate.shape}")
    for who, side in (("reference", reference), ("candidate", candidate)):
        if not np.isfinite(side).all():
            raise ValueError(f"the {who}'s logits are not all finite")
        if not side.any():
            raise ValueError(f"the {who}'s logits are all zero: nothing was computed")
    ours, theirs = reference.astype(np.float64), candidate.astype(np.float64)
    log_p, log_q = log_softmax(ours), log_softmax(theirs)
    kl = np.maximum((np.exp(log_p) * (log_p - log_q)).sum(axis=1), 0.0)
    gap = np.abs(ours - theirs).max(axis=1)
    return Distance(
        positions=len(kl),
        kl_mean=float(kl.mean()),
        kl_p99=float(np.quantile(kl, 0.99)),
        kl_max=float(kl.max()),
        kl_max_at=int(kl.argmax()),
        max_abs_logit=float(gap.max()),
        max_abs_logit_at=int(gap.argmax()),
        argmax_changes=int((ours.argmax(axis=1) != theirs.argmax(axis=1)).sum()),
    )
