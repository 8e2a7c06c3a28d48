"""The stages: pure functions over float32 logits [rows, V] with one parameter per row, off at its neutral value.

The order is the declared one of the "llama.cpp" preset: logit bias, penalties, top-k, top-p, min-p, temperature.
The truncating stages work on logits sorted in descending order and remove an entry by making it -infinity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tokenline.decode.sampling.parameters import RowParameters
from tokenline.ops.base import Array, Ops

REMOVED = float("-inf")


def _columns(ops: Ops, values: Sequence[float]) -> Array:
    return ops.float32(np.asarray(values, dtype=np.float32)[:, None])


def _padded(entries: Sequence[Sequence[int]]) -> np.ndarray:
    """[rows, longest], a row's own first entry repeated as filler, so that a filler writes what is written anyway."""
    width = max([1, *(len(e) for e in entries)])
    return np.asarray([[*e, *[e[0] if e else 0] * (width - len(e))] for e in entries], dtype=np.int64)


def bias(ops: Ops, logits: Array, rows: Sequence[RowParameters]) -> Array:
    """Add each row's logit bias."""
    biases = [row.sampling.logit_bias for row in rows]
    if not any(biases):
        return logits
    tokens = _padded([list(b) for b in biases])
    added = np.asarray(
        [[b.get(int(t), 0.0) for t in line] for b, line in zip(biases, tokens, strict=True)], np.float32
    )
    indices = ops.array(tokens)
    return ops.scatter(logits, indices, ops.gather(logits, indices) + ops.float32(added))


def _window(row: RowParameters, history: Sequence[int]) -> Sequence[int]:
    window = row.sampling.penalty_window
    if not row.sampling.needs_history:
        return ()
    return history if window < 0 else history[-window:]


def penalties(
    ops: Ops, logits: Array, rows: Sequence[RowParameters], histories: Sequence[Sequence[int]]
) -> Array:
    """Repetition (divide a positive logit, multiply a negative one; CTRL, Keskar et al. 2019), then frequency
    (times the count) and presence, over the tokens in each row's window."""
    if not any(row.sampling.needs_history for row in rows):
        return logits
    counts = [Counter(_window(row, history)) for row, history in zip(rows, histories, strict=True)]
    tokens = _padded([list(c) for c in counts])
    seen = np.asarray([[c[int(t)] for t in line] for c, line in zip(counts, tokens, strict=True)], np.float32)
    indices = ops.array(tokens)
    current = ops.gather(logits, indices)
    # A row with nothing in its window has a filler with count 0, which every term below leaves alone.
    present = ops.float32((seen > 0).astype(np.float32))
    factor = _columns(ops, [row.sampling.repetition_penalty for row in rows])
    factor = 1 + (factor - 1) * present
    changed = ops.where(current > 0, current / factor, current * factor)
    changed = changed - _columns(ops, [row.sampling.frequency_penalty for row in rows]) * ops.float32(seen)
    changed = changed - _columns(ops, [row.sampling.presence_penalty for row in rows]) * present
    return ops.scatter(logits, indices, changed)


def top_k(ops: Ops, ordered: Array, rows: Sequence[RowParameters]) -> Array:
    """Keep the k largest; of equal ones at the edge, those with the lower token id."""
    size = ordered.shape[-1]
    if not any(row.sampling.top_k for row in rows):
        return ordered
    ranks = ops.float32(np.arange(size, dtype=np.float32)[None])
    return ops.where(ranks < _columns(ops, [row.sampling.top_k or size for row in rows]), ordered, REMOVED)


def top_p(ops: Ops, ordered: Array, rows: Sequence[RowParameters]) -> Array:
    """Keep the smallest head whose mass reaches p (Holtzman et al. 2020); the first always stays."""
    if all(row.sampling.top_p >= 1 for row in rows):
        return ordered
    masses = ops.softmax(ordered)
    before = ops.cumsum(masses) - masses
    # Off is a bound that no sum reaches, not 1, which rounding could exceed.
    bounds = _columns(ops, [row.sampling.top_p if row.sampling.top_p < 1 else 2.0 for row in rows])
    ranks = ops.float32(np.arange(ordered.shape[-1], dtype=np.float32)[None])
    return ops.where((before < bounds) | (ranks < 1), ordered, REMOVED)


def min_p(ops: Ops, ordered: Array, rows: Sequence[RowParameters]) -> Array:
    """Keep what has at least min_p times the mass of the most likely."""
    if not any(row.sampling.min_p for row in rows):
        return ordered
    # In logits the ratio of two masses is a difference, so no normalisation can disturb the bound.
    floors = [float(np.log(row.sampling.min_p)) if row.sampling.min_p else REMOVED for row in rows]
    return ops.where(ordered - ordered[:, :1] >= _columns(ops, floors), ordered, REMOVED)


def temperature(ops: Ops, logits: Array, rows: Sequence[RowParameters]) -> Array:
    """Divide by the temperature of each sampled row."""
    return logits / _columns(ops, [row.sampling.temperature or 1.0 for row in rows])
