"""Checks of teacher-forced logits."""

from __future__ import annotations

import numpy as np

from paritygate.arms.base import ArmError
from paritygate.conformance.subject import Broken, Subject

# A lead of this much, in logits, is decided: rounding between one forward and many steps moves less.
DECIDED = 0.1
NORMALISED = 0.02


def logits(subject: Subject) -> str:
    """float32 [tokens - start, vocabulary], finite; the row before each token prefers it where it was decided."""
    arm, answer = subject.arm(), subject.answer()
    if not arm.capabilities.teacher_forcing:
        try:
            arm.logits((1, 2, 3), 0)
        except ArmError:
            return "it gives none, and says so"
        raise Broken("it declares no teacher forcing, and `logits` answers")
    prompt, ids = answer.prompt_token_ids, answer.token_ids
    if not prompt or not ids:
        raise Broken("it declares teacher forcing, and tells no token ids to force")
    start = len(prompt) - 1
    rows = arm.logits(prompt + ids[:-1], start)
    if rows.dtype != np.float32 or rows.ndim != 2 or rows.shape[0] != len(ids):
        raise Broken(f"logits are {rows.dtype} {rows.shape}, float32 ({len(ids)}, vocabulary) is expected")
    if rows.shape[1] <= max(*prompt, *ids):
        raise Broken(f"logits have {rows.shape[1]} columns, a token is {max(*prompt, *ids)}")
    if not np.isfinite(rows).all():
        raise Broken("logits are not all finite")
    _normalisation(rows, raw=arm.capabilities.raw_logits)
    decided = 0
    for index, (row, token) in enumerate(zip(rows, ids, strict=True)):
        second, first = np.partition(row, -2)[-2:]
        if first - second < DECIDED:
            continue
        decided += 1
        if int(row.argmax()) != token:
            raise Broken(
                f"at token {index} it said {token}, its logits prefer {int(row.argmax())} by {first - second:.2f}"
            )
    if not decided:
        raise Broken("no position is decided: nothing was compared")
    return f"{rows.shape[0]} rows of {rows.shape[1]}; {decided} decided, each the token that it said"


def _normalisation(rows: np.ndarray, *, raw: bool) -> None:
    wide = rows.astype(np.float64)
    peak = wide.max(axis=1, keepdims=True)
    total = np.log(np.exp(wide - peak).sum(axis=1)) + peak[:, 0]
    normalised = bool((np.abs(total) < NORMALISED).all())
    if normalised and raw:
        raise Broken("it declares raw_logits, and gives log-softmax")
    if not normalised and not raw:
        raise Broken(f"without raw_logits rows are log-softmax; these sum to exp({float(total[0]):.3g})")
