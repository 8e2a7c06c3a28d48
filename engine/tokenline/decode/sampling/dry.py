"""DRY, "don't repeat yourself": what would go on with a repetition is penalised by how long it is already.

The definition is that of its inventors (p-e-w, oobabooga/text-generation-webui#5677) with llama.cpp's treatment of
sequence breakers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tokenline.decode.sampling.breakers import Breakers
from tokenline.decode.sampling.masks import padded
from tokenline.decode.sampling.penalties import last
from tokenline.ops.base import Array, Ops
from tokenline.request import Sampling

_LOG_OF_LARGEST_FLOAT32 = 88.7228391
# Tokens of each earlier copy that are compared at once.
_COMPARED = 32


def dry(
    ops: Ops,
    logits: Array,
    rows: Sequence[Sampling],
    histories: Sequence[Sequence[int]],
    breakers: Sequence[Breakers],
    scale: Array | float = 1.0,
    *,
    spare: bool = False,
) -> Array:
    """Subtract multiplier * base^(length - allowed length) from each token that would continue a repetition of at
    least the allowed length. `scale` and `spare` as in `penalties`."""
    found = [
        _penalised(row, history, breaks)
        for row, history, breaks in zip(rows, histories, breakers, strict=True)
    ]
    if not any(found):
        return logits
    tokens = padded([list(each) for each in found])
    subtracted = np.asarray(
        [[each.get(t, 0.0) for t in line] for each, line in zip(found, tokens.tolist(), strict=True)],
        np.float32,
    )
    indices = ops.array(tokens)
    changed = ops.gather(logits, indices) - ops.float32(subtracted) * scale
    return ops.scatter(logits, indices, changed, spare=spare)


def _penalised(row: Sampling, history: Sequence[int], breakers: Breakers) -> dict[int, float]:
    """What is subtracted from which token."""
    # Beyond this exponent float32 would overflow; a base of 1 has no growth to bound.
    most = int(_LOG_OF_LARGEST_FLOAT32 / math.log(row.dry_base)) if row.dry_base > 1.000001 else 0
    lengths = repetitions(
        last(history, row.dry_window), breakers, row.dry_allowed_length, row.dry_allowed_length + most
    )
    return {
        token: row.dry_multiplier * row.dry_base ** (length - row.dry_allowed_length)
        for token, length in lengths.items()
        if () not in breakers.get(token, ())
    }


def repetitions(window: Sequence[int], breakers: Breakers, least: int, most: int) -> dict[int, int]:
    """For each token that would continue a repetition of at least `least` tokens, how long the longest of these is,
    counted up to `most`: that many last tokens stand somewhere before, followed by this one."""
    size = len(window)
    if size <= least:
        return {}
    limit = _since_breaker(window, breakers, most)
    if limit < least:
        return {}
    tokens = np.asarray(window, dtype=np.int64)
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])  # where an earlier copy of the last tokens may end
    lengths = np.zeros(len(ends), np.int64)
    longer = np.arange(len(ends))  # which copies have matched so far
    for start in range(0, limit, _COMPARED):
        steps = np.arange(start, min(start + _COMPARED, limit))
        places = ends[longer, None] - steps
        same = (places >= 0) & (tokens[np.maximum(places, 0)] == tokens[size - 1 - steps])
        run = np.logical_and.accumulate(same, axis=1).sum(axis=1)
        lengths[longer] += run
        longer = longer[run == len(steps)]
        if not len(longer):
            break
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] >= least]
    # Of the copies before one token the longest comes last, and stays.
    return dict(zip(tokens[ends[order] + 1].tolist(), lengths[order].tolist(), strict=True))


def _since_breaker(window: Sequence[int], breakers: Breakers, most: int) -> int:
    """How many tokens, `most` at most, have followed the last breaker: no repetition reaches back over it."""
    size = len(window)
    longest = max((len(tail) for tails in breakers.values() for tail in tails), default=0)
    for back in range(min(size, most + longest)):
        tails = breakers.get(window[size - 1 - back], ())
        whole = [
            len(tail)
            for tail in tails
            if len(tail) <= back and tuple(window[size - back : size - back + len(tail)]) == tuple(tail)
        ]
        if whole:
            return min(back - max(whole), most)
    return min(size, most)
