"""Mirostat 1 and 2 (Basu et al. 2021): truncation that steers the surprise of the text to a target."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tokenline.decode.sampling.candidates import Candidates, columns, ranks
from tokenline.ops.base import Array
from tokenline.request import Sampling

# How many of the likeliest tokens version 1 estimates the distribution's exponent from.
ESTIMATED_FROM = 100


def initial(row: Sampling) -> float:
    """The bound that a row starts with, in bits."""
    return 2 * row.mirostat_tau


def following(row: Sampling, mu: float, surprise: float) -> float:
    """The bound after a token with this surprise, in bits, was drawn."""
    return mu - row.mirostat_eta * (surprise - row.mirostat_tau)


def cut_by_bound(candidates: Candidates, mus: Sequence[float]) -> Candidates:
    """Version 2: keep the tokens with a surprise of at most mu, and always the likeliest."""
    ops = candidates.ops
    bounds = columns(ops, [2.0 ** -min(mu, 120.0) for mu in mus])
    fixed = ranks(ops, candidates.logits) < 1
    return candidates.keep((candidates.masses() >= bounds) | fixed)


def cut_by_estimate(candidates: Candidates, mus: Sequence[float]) -> Candidates:
    """Version 1: estimate the exponent s of a Zipf distribution from the head, and keep the k likeliest of which it
    says that their expected surprise is mu."""
    counts = estimated_count(candidates, mus)
    return candidates.keep(ranks(candidates.ops, candidates.logits) < counts)


def estimated_count(candidates: Candidates, mus: Sequence[float]) -> Array:
    """Version 1's k of each row, float32 [rows, 1], at least 1. Candidates in descending order."""
    ops = candidates.ops
    top = candidates.tempered()[:, :ESTIMATED_FROM]
    size = top.shape[-1]
    steps = [math.log((i + 2) / (i + 1)) for i in range(size - 1)]
    # The log of two masses' ratio is the difference of their logits. A removed entry ends the estimate.
    left = top[:, 1:] > -1e30
    falls = ops.where(left, top[:, :-1] - ops.where(left, top[:, 1:], 0.0), 0.0)
    row = ops.float32(np.asarray([steps], np.float32))
    used = ops.where(left, row * row + falls * 0, 0.0)
    exponent = ops.row_sum(falls * row) / ops.where(ops.row_sum(used) > 0, ops.row_sum(used), 1.0)
    exponent = ops.where(exponent > 1e-3, exponent, 1e-3)
    excess = exponent - 1
    excess = ops.where((excess < 1e-5) & (excess > -1e-5), 1e-5, excess)
    powers = columns(ops, [2.0 ** min(mu, 120.0) for mu in mus])
    rest = 1 - ops.exp(-excess * math.log(candidates.vocabulary))
    count = ops.exp(ops.log(excess * powers / rest) / exponent)
    return ops.where(count >= 1, ops.to_float32(ops.to_int(ops.where(count < 1e9, count, 1e9))), 1.0)
