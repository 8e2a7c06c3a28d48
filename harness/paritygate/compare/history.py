"""Whether penalties saw every token up to the last one: draws recomputed on the host from raw logits.

The penalties are llama.cpp's (`llama_sampler_penalties_apply`): a logit of a token in the window is divided by the
repetition penalty, multiplied where it is not positive, and loses `count * frequency + presence`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from paritygate.case import Sampler
from paritygate.compare.comparison import Comparison, side_by_side
from paritygate.stream import Stream
from paritygate.verdict import Verdict


def penalised(row: np.ndarray, history: Sequence[int], sampler: Sampler) -> np.ndarray:
    """Logits [vocabulary] after the penalties of a case over a history; the last `penalty_window` tokens count."""
    window = sampler.penalty_window
    seen = history if window is None or window < 0 else history[len(history) - min(window, len(history)) :]
    repetition = 1.0 if sampler.repetition_penalty is None else sampler.repetition_penalty
    row = row.astype(np.float64)
    for token, count in Counter(seen).items():
        row[token] = row[token] / repetition if row[token] > 0 else row[token] * repetition
        row[token] -= count * (sampler.frequency_penalty or 0.0) + (sampler.presence_penalty or 0.0)
    return row


def _decided(row: np.ndarray, floor: float) -> int | None:
    """The greedy token, or None at a near-tie."""
    second, first = np.partition(row, -2)[-2:]
    return int(row.argmax()) if first - second >= floor else None


def follow(stream: Stream, logits: np.ndarray, sampler: Sampler, floor: float) -> Comparison:
    """Judge an answer against its own raw teacher-forced logits [tokens, vocabulary].

    IDENTICAL where every decided draw is the greedy one under an up-to-date history. A case in which a history that
    lags by one token would have drawn the same everywhere proves nothing: NOT_RUN.
    """
    prompt, said = list(stream.prompt_token_ids or ()), list(stream.token_ids or ())
    details = side_by_side(stream, stream)
    wrong, lag_wrong, telling, decided = [], [], [], 0
    for index, token in enumerate(said):
        history = prompt + said[:index]
        now = _decided(penalised(logits[index], history, sampler), floor)
        # The token of the step before is the one that a stale history has not seen; a first draw has none.
        late = _decided(penalised(logits[index], history[:-1] if index else history, sampler), floor)
        decided += now is not None
        if now is not None and now != token:
            wrong.append({"index": index, "token_id": token, "expected_id": now, "lagging_id": late})
        if late is not None and late != token:
            lag_wrong.append(index)
        if None not in (now, late) and now != late:
            telling.append(index)
    details |= {
        "positions": len(said),
        "decided": decided,
        "telling": telling,
        "wrong": wrong,
        "lag_wrong": lag_wrong,
    }
    if not said or not decided:
        return Comparison(Verdict.NOT_RUN, "no draw was decided: nothing was compared", details)
    if wrong:
        at = wrong[0]
        what = (
            f"token {at['index']} is {at['token_id']}, penalties over the history up to the last token give "
            f"{at['expected_id']} ({len(wrong)} of {decided} decided draws are wrong)"
        )
        if not lag_wrong:
            what = f"the history is one token stale: every draw fits one that lacks the last token; {what}"
        elif len(wrong) == decided:
            what = f"the penalties were not applied as asked; {what}"
        return Comparison(Verdict.DIVERGED, what, details)
    if not telling:
        return Comparison(
            Verdict.NOT_RUN,
            "a history that lags by a token would have drawn the same: the case proves nothing",
            details,
        )
    return Comparison(
        Verdict.IDENTICAL,
        f"{decided} decided draws follow the up-to-date history; one a token stale differs at {len(telling)} of them",
        details,
    )
