"""Re-anchoring: feed the reference's token at each fork, go on, and count where the arm would say another again."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from paritygate.arms.base import Arm
from paritygate.case import Case
from paritygate.compare.identity import first_difference
from paritygate.compare.ties import forks_of
from paritygate.logits import log_softmax
from paritygate.stream import Stream
from paritygate.triage.budget import Budget, Spent
from paritygate.triage.divergence import Divergence

# Each fork costs a prompt where the arm cannot be teacher-forced.
PROMPTED_FORKS = 8

Top = list[list[Any]]


def spellings(*streams: Stream | None) -> dict[int, str]:
    """The text of every token that a stream spells."""
    found: dict[int, str] = {}
    for stream in streams:
        for position in (stream.positions if stream is not None else None) or ():
            named = [
                (position.token_id, position.token),
                *((top.token_id, top.token) for top in position.top),
            ]
            found |= {token_id: token for token_id, token in named if token_id is not None}
    return found


def top_two(row: np.ndarray, names: dict[int, str]) -> Top:
    """[id, text or None, natural logprob] of the two most likely tokens of a row of logits."""
    logprobs = log_softmax(row)
    return [[int(i), names.get(int(i)), float(logprobs[i])] for i in np.argsort(-row, kind="stable")[:2]]


def _told(stream: Stream, index: int) -> tuple[Top, float | None]:
    position = stream.position(index)
    if position is None:
        return [], None
    return [[top.token_id, top.token, top.logprob] for top in position.top[:2]], position.gap


def _fork(
    index: int, ids: tuple[int, int], tops: tuple[Top, Top], gaps: tuple[Any, Any], floor: float
) -> dict:
    known = [gap for gap in gaps if gap is not None]
    return {
        "index": index,
        "reference_id": ids[0],
        "arm_id": ids[1],
        "top": {"reference": tops[0], "arm": tops[1]},
        "gaps": list(gaps),
        # Neither side decides, as far as they tell: then rounding may choose.
        "tie": max(known) < floor if known else None,
    }


def _summary(method: str, arm: str, forks: list[dict], looked_at: int, positions: int) -> dict[str, Any]:
    ties = sum(fork["tie"] is True for fork in forks)
    where = f"{looked_at} of {positions} positions" if looked_at < positions else f"all {positions} positions"
    if not forks:
        sentence = f"fed the reference's tokens ({method}), {arm} says the same at {where}"
    else:
        later = len(forks) - 1
        sentence = (
            f"fed the reference's tokens ({method}), {arm} forks at token {forks[0]['index']} and "
            f"{later} time(s) later, at {where}; {ties} near-tie(s)"
        )
    return {
        "method": method, "forks": forks, "looked_at": looked_at, "positions": positions, "near_ties": ties,
        "sentence": sentence,
    }  # fmt: skip


def by_teacher_forcing(found: Divergence, logits: np.ndarray) -> dict[str, Any]:
    """Forks of one forward over the reference's tokens: row i of the logits decides token i."""
    names = spellings(found.reference, found.candidate)
    forks = []
    for fork in forks_of(found.reference, logits):
        told, gap = _told(found.reference, fork.index)
        tops = told, top_two(logits[fork.index], names)
        forks.append(
            _fork(fork.index, (fork.reference_id, fork.arm_id), tops, (gap, fork.arm_gap), found.floor)
        )
    return _summary("one forward", found.arm, forks, len(found.said), len(found.said))


def _continued(case: Case, tokens: tuple[int, ...], left: int) -> Case:
    return msgspec.structs.replace(case.with_token_ids(tokens), max_tokens=left, stop=())


def by_prompting(found: Divergence, arm: Arm, budget: Budget) -> dict[str, Any]:
    """Forks of an arm that takes token ids: after each it is asked again, its prompt the reference up to there.

    Raises ArmError where it takes none. At most PROMPTED_FORKS of them.
    """
    said, start, looked_at = found.said, 0, 0
    forks: list[dict] = []
    try:
        while start < len(said) and len(forks) < PROMPTED_FORKS:
            budget.call()
            asked = _continued(found.case, found.prompt + said[:start], len(said) - start)
            answer = arm.generate(asked)
            theirs = answer.token_ids or ()
            at = first_difference(said[start:], theirs)
            if at is None:
                looked_at = start + min(len(theirs), len(said) - start)
                break
            index = start + at
            tops = _told(found.reference, index), _told(answer, at)
            forks.append(
                _fork(
                    index, (said[index], theirs[at]), (tops[0][0], tops[1][0]), (tops[0][1], tops[1][1]),
                    found.floor,
                )
            )  # fmt: skip
            looked_at = start = index + 1
    except Spent:
        if not looked_at:
            raise
    return _summary("as a prompt", found.arm, forks, looked_at, len(said))
