"""Stages that leave only some candidates. Each takes one setting per row, active in every row that it is given.

At least `min_keep` candidates stay; of equal ones at an edge those with the lower id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tokenline.decode.sampling.candidates import REMOVED, TRIED, Candidates, columns, hold, ranks
from tokenline.ops.base import Array, Ops
from tokenline.request import Sampling

# Below every logit that is one, above what a removed one is.
_LOWEST = -3e38


def top_k(candidates: Candidates, rows: Sequence[Sampling], width: int) -> Candidates:
    """Keep the k largest; `width` is at least each row's k, or everything."""
    head = candidates.first(width)
    ops = head.ops
    return head.keep(ranks(ops, head.logits) < columns(ops, [row.top_k for row in rows]))


def top_p(candidates: Candidates, rows: Sequence[Sampling]) -> Candidates:
    """Keep the smallest head whose mass reaches p (Holtzman et al. 2020)."""
    head = candidates.ordered()
    ops = head.ops
    masses = head.masses()
    before = ops.cumsum(masses) - masses
    fixed = ranks(ops, head.logits) < _min_keep(candidates, rows)
    kept = head.keep((before < columns(ops, [row.top_p for row in rows])) | fixed)
    return replace(kept, shares=None)


def min_p(candidates: Candidates, rows: Sequence[Sampling]) -> Candidates:
    """Keep what has at least min_p times the mass of the likeliest (Nguyen et al. 2024), and what ties with one of
    the `min_keep` likeliest."""
    ops = candidates.ops
    # In logits the ratio of two masses is a difference, so no normalisation can disturb the bound.
    below = columns(ops, [float(np.log(row.min_p)) for row in rows])
    if candidates.divisor is not None:
        below = below * candidates.divisor
    bound = ops.row_max(candidates.logits) + below
    most = max(row.min_keep for row in rows)
    if most > 1:
        values, _ = ops.largest(candidates.logits, most)
        last = np.asarray([[min(row.min_keep, values.shape[-1]) - 1] for row in rows])
        least = ops.gather(values, ops.array(last))
        bound = ops.where(least < bound, least, bound)
    return candidates.at_least(bound)


def top_n_sigma(candidates: Candidates, rows: Sequence[Sampling]) -> Candidates:
    """Keep the logits within n standard deviations of the largest (Tang et al. 2024, "Top-nσ"), of the logits that are
    left. The likeliest `min_keep` are not kept for their own sake, in llama.cpp neither."""
    ops = candidates.ops
    settled = candidates.settled()
    greatest = ops.row_max(settled.logits)
    # Below the largest, so that the squares are of the size of the variance and their difference keeps its digits.
    below = settled.logits - greatest
    left = ops.row_sum(settled.logits > REMOVED)
    below = ops.above(below, _LOWEST, 0.0)
    mean = ops.row_sum(below) / left
    variance = ops.row_sum(below * below) / left - mean * mean
    variance = ops.where(variance > 0, variance, 0.0)
    span = variance**0.5 * columns(ops, [row.top_n_sigma for row in rows])
    return settled.at_least(greatest - span)


def typical_p(candidates: Candidates, rows: Sequence[Sampling]) -> Candidates:
    """Keep the smallest set with mass p of the tokens whose surprise is nearest to the expected one (Meister et al.
    2022). What is left has gaps, so it is in order of the vocabulary, or of nothing, afterwards."""
    settled = candidates.settled()
    ops = settled.ops
    masses = settled.masses()
    left = masses > 0
    surprise = ops.where(left, -ops.log(ops.where(left, masses, 1.0)), 0.0)
    entropy = ops.row_sum(masses * surprise)
    distance = surprise - entropy
    distance = ops.where(distance < 0, -distance, distance)
    nearness = ops.where(left, -distance, REMOVED)
    nearest, indices, gathered = _nearest(ops, nearness, masses, rows)
    before = ops.cumsum(gathered) - gathered
    fixed = ranks(ops, nearest) < _min_keep(candidates, rows)
    kept = (before < columns(ops, [row.typical_p for row in rows])) | fixed
    logits = ops.where(kept, ops.gather(settled.logits, indices), REMOVED)
    nothing = ops.float32(np.full(settled.logits.shape, REMOVED, np.float32))
    return settled.with_logits(ops.scatter(nothing, indices, logits, spare=True))


def _nearest(
    ops: Ops, nearness: Array, masses: Array, rows: Sequence[Sampling]
) -> tuple[Array, Array, Array]:
    """Nearness in descending order, whose it is, and their masses: of so many as hold what typical-p keeps, where
    looking whether they do waits for nothing; else of all."""
    width = nearness.shape[-1]
    least = max(row.min_keep for row in rows)
    for count in TRIED:
        if not least <= count < width:
            continue
        nearest, indices = ops.largest(nearness, count)
        gathered = ops.gather(masses, indices)
        shares = ops.peek(gathered)
        if shares is None:
            break
        if hold(shares, [row.typical_p for row in rows]).all():
            return nearest, indices, gathered
    nearest, indices = ops.largest(nearness, width)
    return nearest, indices, ops.gather(masses, indices)


def _min_keep(candidates: Candidates, rows: Sequence[Sampling]) -> object:
    return columns(candidates.ops, [row.min_keep for row in rows])
