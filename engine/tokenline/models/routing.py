"""Which experts a token is sent to, and what share of the answer each has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.ops.arrays import dense
from tokenline.ops.base import Array, Ops

# Scores float32 [N, E] -> experts int [N, C] and their shares float32 [N, C].
Choice = Callable[[Array], tuple[Array, Array]]


class Router:
    """In float32 whatever the dtype: which expert is asked is the one thing that jumps where scores are close."""

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        *,
        width: int,
        experts: int,
        choice: Choice,
        bias: bool = False,
    ) -> None:
        self._ops, self._choice = ops, choice
        self._weight = ops.float32(dense(tensors.take(f"{name}.weight", (experts, width))).T)
        self._bias = ops.float32(dense(tensors.take(f"{name}.bias", (experts,)))) if bias else None
        self.nbytes = self._weight.nbytes

    def __call__(self, rows: Array) -> tuple[Array, Array]:
        """[N, width] -> experts and shares, [N, C] each."""
        scores = self._ops.to_float32(rows) @ self._weight
        return self._choice(scores if self._bias is None else scores + self._bias)


def softmax_then_choose(ops: Ops, chosen: int, *, normalize: bool) -> Choice:
    """The largest of the softmax over all experts; `normalize`: their shares add up to one."""

    def choice(scores: Array) -> tuple[Array, Array]:
        shares, experts = ops.largest(ops.softmax(scores), chosen)
        return experts, shares / ops.row_sum(shares) if normalize else shares

    return choice


def choose_then_softmax(ops: Ops, chosen: int) -> Choice:
    """The softmax over the largest scores only."""

    def choice(scores: Array) -> tuple[Array, Array]:
        largest, experts = ops.largest(scores, chosen)
        return experts, ops.softmax(largest)

    return choice


def choose_then_sigmoid(ops: Ops, chosen: int) -> Choice:
    """The sigmoid of each of the largest scores by itself."""

    def choice(scores: Array) -> tuple[Array, Array]:
        largest, experts = ops.largest(scores, chosen)
        return experts, ops.sigmoid(largest)

    return choice


def sigmoid_in_groups(
    ops: Ops,
    chosen: int,
    *,
    correction: Array,
    groups: int,
    kept_groups: int,
    normalize: bool,
    scale: float,
) -> Choice:
    """Sigmoid scores; a correction [E] takes part in the choice and not in the shares (DeepSeek-V3, 2.1.2).

    Of the experts' groups those are kept whose two best add up to most; the others' experts are out of the choice.
    """

    def kept(scores: Array) -> Array:
        rows, experts = scores.shape
        best, _ = ops.largest(scores.reshape(rows * groups, experts // groups), 2)
        _, indices = ops.largest(ops.row_sum(best).reshape(rows, groups), kept_groups)
        zeros = ops.float32(np.zeros((rows, groups), np.float32))
        ones = ops.float32(np.ones((rows, kept_groups), np.float32))
        mask = ops.scatter(zeros, indices, ones)[:, :, None]
        of_groups = scores.reshape(rows, groups, experts // groups)
        return ops.where(mask > 0, of_groups, float("-inf")).reshape(rows, experts)

    def choice(logits: Array) -> tuple[Array, Array]:
        scores = ops.sigmoid(logits)
        corrected = scores + correction
        _, experts = ops.largest(kept(corrected) if groups > 1 else corrected, chosen)
        shares = ops.gather(scores, experts)
        if normalize:
            shares = shares / (ops.row_sum(shares) + 1e-20)
        return experts, shares * scale

    return choice


def grouped_choice(
    ops: Ops, config: Mapping[str, Any], tensors: Tensors, name: str, count: int, chosen: int
) -> Choice:
    """`sigmoid_in_groups` by the keys of DeepSeek-V3's configuration, its correction beside the router `name`."""
    return sigmoid_in_groups(
        ops,
        chosen,
        correction=ops.float32(dense(tensors.take(f"{name}.e_score_correction_bias", (count,)))),
        groups=config.get("n_group") or 1,
        kept_groups=config.get("topk_group") or 1,
        normalize=bool(config.get("norm_topk_prob", True)),
        scale=config.get("routed_scaling_factor", 1.0),
    )
