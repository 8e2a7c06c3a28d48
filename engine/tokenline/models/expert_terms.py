"""An adapter's part of the experts of a mixture: a low-rank term for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tokenline.checkpoint.adapters import Adapters
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.checkpoint.low_rank import LowRank
from tokenline.models.low_rank import stacked_terms
from tokenline.ops.arrays import HostArray, map_rows
from tokenline.ops.base import Array, Ops


class ExpertTerm:
    """As `LowRankTerm`, each row by its expert's: a [r, K] and b [M, r] for each, size [E, M] or None."""

    def __init__(
        self, ops: Ops, a: Sequence[np.ndarray], b: Sequence[np.ndarray], size: np.ndarray | None
    ) -> None:
        self._ops = ops
        self._a, self._b = ops.expert_weights(a, exact=True), ops.expert_weights(b, exact=True)
        self._size = None if size is None else ops.array(size)

    def __call__(self, x: Array, y: Array, experts: Array) -> Array:
        """x [N, 1 or C, K], y [N, C, M] and experts [N, C] as in `Ops.expert_linear`."""
        ops = self._ops
        y = y + ops.expert_linear(ops.expert_linear(x, self._a, experts), self._b, experts)
        return y if self._size is None else y * self._size[experts]


@dataclass(frozen=True)
class ExpertTerms:
    """By adapter, of the projections into the experts and of those out."""

    adapters: Adapters = field(default_factory=Adapters)
    gate_up: dict[str, ExpertTerm] = field(default_factory=dict)
    down: dict[str, ExpertTerm] = field(default_factory=dict)


def expert_terms(
    ops: Ops,
    tensors: Tensors,
    name: str,
    matrices: tuple[Sequence[HostArray], Sequence[HostArray]],
    layouts: Sequence[tuple[str, Sequence[str]]],
) -> ExpertTerms:
    """Of the MLP `name`, whose experts have `matrices` (gate above up, and down). A layout is how an adapter may name
    an expert, with its number at `{}`, and its gate, up and down projection."""
    gate_up, down = matrices
    inner = down[0].shape[1]

    def taken(part: int, expert: int, shape: tuple[int, int]) -> dict[str, LowRank]:
        found: dict[str, LowRank] = {}
        for layout, parts in layouts:
            found |= tensors.adapted(f"{name}.{layout.format(expert)}.{parts[part]}", shape)
        return found

    def terms(parts: Sequence[int], split: Sequence[Sequence[HostArray]]) -> dict[str, ExpertTerm]:
        by_expert = [
            [taken(part, expert, (m.shape[0], m.shape[1])) for part, m in zip(parts, of_expert, strict=True)]
            for expert, of_expert in enumerate(split)
        ]
        adapters = sorted({adapter for of in by_expert for part in of for adapter in part})
        return {
            adapter: _together(ops, [[part.get(adapter) for part in of] for of in by_expert], split)
            for adapter in adapters
        }

    halves = [
        [map_rows(both, lambda rows: rows[:inner]), map_rows(both, lambda rows: rows[inner:])]
        for both in gate_up
    ]
    return ExpertTerms(tensors.adapters, terms((0, 1), halves), terms((2,), [[each] for each in down]))


def _together(
    ops: Ops, terms: Sequence[Sequence[LowRank | None]], matrices: Sequence[Sequence[HostArray]]
) -> ExpertTerm:
    """Of one rank, the largest: backends keep the experts' matrices as one."""
    stacked = [stacked_terms(ops, of, m, [None] * len(m)) for of, m in zip(terms, matrices, strict=True)]
    rank = max(a.shape[0] for a, _, _ in stacked)
    sizes = [size for _, _, size in stacked]
    resized = any(size is not None for size in sizes)
    ones = np.ones(len(stacked[0][1]), np.float32)
    return ExpertTerm(
        ops,
        [np.pad(a, ((0, rank - a.shape[0]), (0, 0))) for a, _, _ in stacked],
        [np.pad(b, ((0, 0), (0, rank - b.shape[1]))) for _, b, _ in stacked],
        np.stack([ones if size is None else size for size in sizes]) if resized else None,
    )
