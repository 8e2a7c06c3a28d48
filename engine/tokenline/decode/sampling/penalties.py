"""Repetition, presence and frequency penalties over a window of each row's history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tokenline.decode.sampling.candidates import columns
from tokenline.decode.sampling.masks import padded
from tokenline.ops.base import Array, Ops
from tokenline.request import Sampling


def last(history: Sequence[int], window: int) -> Sequence[int]:
    """The most recent `window` tokens; -1 is all of them."""
    if window < 0:
        return history
    return history[-window:] if window else ()


def penalties(
    ops: Ops,
    logits: Array,
    rows: Sequence[Sampling],
    histories: Sequence[Sequence[int]],
    scale: Array | float = 1.0,
    *,
    spare: bool = False,
) -> Array:
    """Repetition (divide a positive logit, multiply a negative one; CTRL, Keskar et al. 2019), then frequency
    (times the count) and presence. `scale` [rows, 1] is what logits have been multiplied by before: it multiplies
    what is subtracted too. `spare` as in `Ops.scatter`."""
    counts = [_counts(row, history) for row, history in zip(rows, histories, strict=True)]
    tokens = padded([list(dict.fromkeys([t for c in each for t in c])) for each in counts])
    lines = list(zip(counts, tokens.tolist(), strict=True))
    seen = [np.asarray([[c[kind][t] for t in line] for c, line in lines], np.float32) for kind in range(3)]
    indices = ops.array(tokens)
    current = ops.gather(logits, indices)
    # A row with nothing in its window has a filler with count 0, which every term below leaves alone.
    factors = np.asarray([[row.repetition_penalty] for row in rows], np.float32)
    factor = ops.float32(np.where(seen[0] > 0, factors, np.float32(1)))
    changed = ops.where(current > 0, current / factor, current * factor)
    presence = columns(ops, [row.presence_penalty for row in rows]) * scale
    frequency = columns(ops, [row.frequency_penalty for row in rows]) * scale
    changed = changed - frequency * ops.float32(seen[2])
    changed = changed - presence * ops.float32((seen[1] > 0).astype(np.float32))
    return ops.scatter(logits, indices, changed, spare=spare)


def _counts(row: Sampling, history: Sequence[int]) -> list[Counter[int]]:
    """How often each token stands in the window of each kind of penalty."""
    by_window = {window: Counter(last(history, window)) for window in set(row.windows)}
    return [by_window[window] for window in row.windows]
