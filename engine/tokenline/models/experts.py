"""A mixture of experts in the place of an MLP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tokenline.models.decoder import Block
from tokenline.models.forward import Forward
from tokenline.models.layers import Linear
from tokenline.models.routing import Router
from tokenline.ops.arrays import HostArray
from tokenline.ops.base import Array, Ops


class Experts:
    """Gated MLPs of which each token is sent to a few: `gate_up` [2F, K] and `down` [K, F] for each.

    `biases` are of all experts, [E, 2F] and [E, K]. An expert's share multiplies what it says, or with
    `shares_in` what it is told.
    """

    def __init__(
        self,
        ops: Ops,
        matrices: tuple[Sequence[HostArray], Sequence[HostArray]],
        gated: Callable[[Array], Array],
        *,
        biases: tuple[np.ndarray, np.ndarray] | None = None,
        shares_in: bool = False,
    ) -> None:
        gate_up, down = matrices
        self._ops, self._gated, self._count = ops, gated, len(gate_up)
        self._shares_in = shares_in
        self._gate_up, self._down = ops.expert_weights(gate_up), ops.expert_weights(down)
        self._gate_up_bias: Array | None = None if biases is None else ops.array(biases[0])
        self._down_bias: Array | None = None if biases is None else ops.array(biases[1])

    def step_bytes(self, chosen: int) -> int:
        """Read for one token."""
        weights = (self._gate_up, self._down)
        return sum(self._ops.weight_bytes(weight) for weight in weights) * chosen // self._count

    def __call__(self, rows: Array, experts: Array, shares: Array) -> Array:
        """rows [N, K], experts and their shares [N, C] -> [N, K]."""
        ops, told = self._ops, rows[:, None]
        by_share = ops.like(shares, rows)[:, :, None]
        if self._shares_in:
            told = told * by_share
        inner = self._gated(ops.expert_linear(told, self._gate_up, experts, self._gate_up_bias))
        said = ops.expert_linear(inner, self._down, experts, self._down_bias)
        return (said if self._shares_in else said * by_share).sum(1)


class MixtureOfExperts:
    """A block: the chosen experts' answers by their shares, and what a shared MLP says to every token.

    `latent`: projections into what the experts read and out of what they say.
    """

    def __init__(
        self,
        router: Router,
        experts: Experts,
        *,
        chosen: int,
        shared: Block | None = None,
        latent: tuple[Linear, Linear] | None = None,
    ) -> None:
        self._router, self._experts, self._shared, self._latent = router, experts, shared, latent
        beside = [*([] if shared is None else [shared]), *(latent or ())]
        self.nbytes = router.nbytes + experts.step_bytes(chosen) + sum(each.nbytes for each in beside)

    def __call__(self, x: Array, forward: Forward, cache: Any = None) -> Array:
        rows = x.reshape(-1, x.shape[-1])
        routed = self._router(rows)
        if self._latent is None:
            y = self._experts(rows, *routed)
        else:
            into, out = self._latent
            y = out(self._experts(into(rows), *routed))
        y = y.reshape(x.shape)
        return y if self._shared is None else y + self._shared(x, forward, cache)
