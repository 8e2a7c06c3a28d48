"""What is added to logits, and which tokens may be drawn at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenline.decode.sampling.candidates import REMOVED
from tokenline.decode.sampling.parameters import RowDraw, RowParameters
from tokenline.ops.base import Array, Ops


def padded(entries: Sequence[Sequence[int]]) -> np.ndarray:
    """[rows, longest], a row's own first entry repeated as filler, so that a filler writes what is written anyway."""
    width = max([1, *(len(e) for e in entries)])
    return np.asarray([[*e, *[e[0] if e else 0] * (width - len(e))] for e in entries], dtype=np.int64)


def bias(ops: Ops, logits: Array, rows: Sequence[RowParameters]) -> Array:
    """Add each row's logit bias."""
    biases = [row.sampling.logit_bias for row in rows]
    if not any(biases):
        return logits
    tokens = padded([list(b) for b in biases])
    added = np.asarray(
        [[b.get(int(t), 0.0) for t in line] for b, line in zip(biases, tokens, strict=True)], np.float32
    )
    indices = ops.array(tokens)
    return ops.scatter(logits, indices, ops.gather(logits, indices) + ops.float32(added))


def allowed(ops: Ops, logits: Array, rows: Sequence[RowParameters]) -> Array:
    """Remove what is not in a row's list of allowed tokens, where it has one."""
    lists = [row.sampling.allowed_tokens for row in rows]
    if all(tokens is None for tokens in lists):
        return logits
    indices = ops.array(padded([tokens or () for tokens in lists]))
    nothing = ops.float32(np.full(logits.shape, REMOVED, np.float32))
    only = ops.scatter(nothing, indices, ops.gather(logits, indices))
    listed = ops.array(np.asarray([tokens is not None for tokens in lists])[:, None])
    return ops.where(listed, only, logits)


def banned(ops: Ops, logits: Array, rows: Sequence[RowParameters], *, spare: bool = False) -> Array:
    """Remove each row's banned tokens, and its end of sequence where it masks it; `spare` as in `Ops.scatter`."""
    lists = [
        [*row.sampling.banned_tokens, *(sorted(row.eos_token_ids) if row.sampling.mask_eos else ())]
        for row in rows
    ]
    if not any(lists):
        return logits
    tokens = padded(lists)
    indices = ops.array(tokens)
    bans = ops.array(np.asarray([bool(line) for line in lists])[:, None])
    left = ops.where(bans, REMOVED, ops.gather(logits, indices))
    return ops.scatter(logits, indices, left, spare=spare)


def grammar(ops: Ops, logits: Array, rows: Sequence[RowDraw]) -> Array:
    """Remove what a row's grammar does not allow here, where it has one."""
    masks = [row.mask for row in rows]
    if all(mask is None for mask in masks):
        return logits
    anything = np.ones(logits.shape[-1], bool)
    allows = ops.array(np.stack([anything if mask is None else mask for mask in masks]))
    return ops.where(allows, logits, REMOVED)
