"""An adapter's part of a projection: computed beside the model's own matrix, so that switching costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.checkpoint.low_rank import LowRank
from tokenline.ops.arrays import HostArray, Rows, coded, dense
from tokenline.ops.base import Array, Ops


class LowRankTerm:
    """y becomes (y + x @ a @ b) * size; what a DoRA's rows are brought to is in `size`, None for a LoRA."""

    def __init__(self, ops: Ops, a: np.ndarray, b: np.ndarray, size: np.ndarray | None) -> None:
        self._a, self._b = ops.array(np.ascontiguousarray(a.T)), ops.array(np.ascontiguousarray(b.T))
        self._size = None if size is None else ops.array(size)

    def __call__(self, x: Array, y: Array) -> Array:
        y = y + x @ self._a @ self._b
        return y if self._size is None else y * self._size


def low_rank_terms(
    ops: Ops, tensors: Tensors, parts: Sequence[tuple[str, HostArray]], changes: Sequence[Rows | None]
) -> dict[str, LowRankTerm]:
    """By adapter, of the projections `parts` that are kept as one matrix; each has its matrix as the checkpoint stores
    it, and how its rows are put into another order."""
    by_part = [tensors.adapted(name, (weight.shape[0], weight.shape[1])) for name, weight in parts]
    adapters = sorted({adapter for taken in by_part for adapter in taken})
    weights = [weight for _, weight in parts]
    return {
        adapter: _together(ops, [taken.get(adapter) for taken in by_part], weights, changes)
        for adapter in adapters
    }


def _together(
    ops: Ops,
    terms: Sequence[LowRank | None],
    weights: Sequence[HostArray],
    changes: Sequence[Rows | None],
) -> LowRankTerm:
    """Each part has its own a; what they make of x lies side by side, and each b reads its own."""
    rank = sum(term.a.shape[0] for term in terms if term is not None)
    b = np.zeros((sum(weight.shape[0] for weight in weights), rank), np.float32)
    size = np.ones(len(b), np.float32)
    row = column = 0
    for term, weight, change in zip(terms, weights, changes, strict=True):
        stop = row + weight.shape[0]
        if term is not None:
            ordered = change or (lambda rows: rows)
            b[row:stop, column : column + term.a.shape[0]] = ordered(term.b)
            column += term.a.shape[0]
            if term.magnitude is not None:
                lengths = term.lengths(dense(coded(weight, ops.precision)))
                size[row:stop] = ordered(term.magnitude / lengths)
        row = stop
    a = np.concatenate([term.a for term in terms if term is not None])
    resized = any(term is not None and term.magnitude is not None for term in terms)
    return LowRankTerm(ops, a, b, size if resized else None)
