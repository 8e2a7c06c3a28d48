"""Mamba 2's mixer: a gated state space whose decay is one number per head and token (Dao and Gu 2024)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenline.cache import RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.models.config import needed
from tokenline.models.convolution import CausalConvolution
from tokenline.models.forward import Forward
from tokenline.models.layers import Linear
from tokenline.models.pieces import chunks, decays
from tokenline.ops.arrays import dense
from tokenline.ops.base import Array, Ops


@dataclass(frozen=True)
class StateSizes:
    width: int
    heads: int
    head: int  # entries of a head
    groups: int  # heads of a group share what is written to the state and read from it
    state: int  # a head's state is [head, state]
    taps: int  # of the convolution
    limits: tuple[float, float] = (0.0, float("inf"))  # of a step's length

    @property
    def inner(self) -> int:
        return self.heads * self.head

    @property
    def convolved(self) -> int:
        return self.inner + 2 * self.groups * self.state

    def checked(self) -> StateSizes:
        counts = (self.width, self.heads, self.head, self.groups, self.state, self.taps)
        if any(not isinstance(n, int) or n < 1 for n in counts) or self.heads % self.groups:
            raise CheckpointError(
                f"the configuration's sizes make no state space: {counts}", "mend config.json"
            )
        return self


def hybrid_sizes(config: Mapping[str, Any], width: int, *, inner: int | None = None) -> StateSizes:
    """By the keys of hybrids (`mamba_n_heads` and so on)."""
    heads, head = needed(config, "mamba_n_heads"), config.get("mamba_d_head", "auto")
    if inner is None:
        inner = config.get("mamba_expand", 2) * width
    if head == "auto":
        head = inner // heads
    if head * heads != inner:
        raise CheckpointError(
            f"{heads} heads of {head} do not fill a state space of {inner}", "mend config.json"
        )
    return StateSizes(
        width=width,
        heads=heads,
        head=head,
        groups=config.get("mamba_n_groups", 1),
        state=config.get("mamba_d_state", 256),
        taps=config.get("mamba_d_conv", 4),
        limits=step_limits(config.get("time_step_limit")),
    )


def published_sizes(
    config: Mapping[str, Any], width: int, *, heads: str, head: str, state: str
) -> StateSizes:
    """By the keys of the published models, of which families name three differently."""
    return StateSizes(
        width=width,
        heads=needed(config, heads),
        head=needed(config, head),
        groups=config.get("n_groups", 8),
        state=config.get(state, 128),
        taps=config.get("conv_kernel", 4),
        limits=step_limits(config.get("time_step_limit")),
    )


def step_limits(told: Any) -> tuple[float, float]:
    """`time_step_limit` as configurations write it: two numbers, infinity perhaps as {"__float__": "Infinity"}."""
    low, high = (0.0, float("inf")) if told is None else told
    low, high = (float(each["__float__"] if isinstance(each, dict) else each) for each in (low, high))
    return low, high


class GatedNorm:
    """A norm over each of `groups` parts of y, gated by silu(gate) before it or after it."""

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        *,
        inner: int,
        groups: int,
        eps: float,
        gate_first: bool = True,
    ) -> None:
        self._ops, self._eps, self._gate_first, self._groups = ops, eps, gate_first, groups
        self._weight = ops.array(dense(tensors.take(f"{name}.weight", (inner,))))
        self._ones = ops.array(np.ones(inner // groups, dtype=np.float32))

    def __call__(self, y: Array, gate: Array) -> Array:
        gate = self._ops.silu(gate)
        if self._gate_first:
            y = y * gate
        parts = y.reshape(*y.shape[:-1], self._groups, -1)
        y = self._ops.rms_norm(parts, self._ones, self._eps).reshape(y.shape) * self._weight
        return y if self._gate_first else y * gate


class Mamba2:
    """in_proj gives a gate, what is convolved (x, b and c side by side) and the length of a step for every head.

    With dt = softplus(dt + dt_bias) and a = -exp(A_log), a head's state h [head, state] goes on as
    h = exp(a * dt) * h + dt * x outer b, and says h @ c + D * x. `norm` is what joins that with the gate (without one,
    y * silu(gate)). `scale` [in_proj's rows] multiplies the projection.
    """

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        sizes: StateSizes,
        *,
        norm: Callable[[Array, Array], Array] | None,
        bias: bool = False,
        out_bias: bool | None = None,
        convolution_bias: bool = True,
        scale: np.ndarray | None = None,
    ) -> None:
        self._ops, self._sizes = ops, sizes.checked()
        inner, heads = sizes.inner, sizes.heads
        rows = inner + sizes.convolved + heads
        self._in = Linear(ops, tensors, [(f"{name}.in_proj", rows)], sizes.width, bias=bias)
        self._convolution = CausalConvolution(
            ops, tensors, f"{name}.conv1d", channels=sizes.convolved, taps=sizes.taps, bias=convolution_bias
        )
        out_bias = bias if out_bias is None else out_bias
        self._out = Linear(ops, tensors, [(f"{name}.out_proj", sizes.width)], inner, bias=out_bias)

        def by_head(part: str) -> np.ndarray:
            return dense(tensors.take(f"{name}.{part}", (heads,)))

        self._dt_bias = ops.float32(by_head("dt_bias"))
        self._decay = ops.float32(-np.exp(by_head("A_log")))
        self._skip = ops.float32(by_head("D")[:, None])
        self._norm = norm
        self._scale = None if scale is None else ops.array(scale)

    @property
    def nbytes(self) -> int:
        return self._in.nbytes + self._out.nbytes

    def __call__(self, x: Array, forward: Forward, cache: RecurrentCache) -> Array:
        ops, sizes = self._ops, self._sizes
        projected = self._in(x)
        if self._scale is not None:
            projected = projected * self._scale
        gate = projected[..., : sizes.inner]
        convolved = projected[..., sizes.inner : sizes.inner + sizes.convolved]
        dt = ops.to_float32(projected[..., sizes.inner + sizes.convolved :])
        carried, state = cache.arrays or (None, None)
        convolved, carried = self._convolution(convolved, carried)
        convolved = ops.to_float32(ops.silu(convolved))
        y, state = self._scan(convolved, self._steps(dt), state)
        cache.update(forward.tokens, carried, state)
        y = ops.like(y, x)
        return self._out(y * ops.silu(gate) if self._norm is None else self._norm(y, gate))

    def _steps(self, dt: Array) -> Array:
        low, high = self._sizes.limits
        dt = self._ops.softplus(dt + self._dt_bias)
        if low > 0:
            dt = self._ops.where(dt < low, low, dt)
        return dt if high == float("inf") else self._ops.where(dt > high, high, dt)

    def _scan(self, convolved: Array, dt: Array, state: Array | None) -> tuple[Array, Array]:
        """[B, T, convolved] and dt [B, T, heads], float32 -> [B, T, inner] and the state after it."""
        sizes = self._sizes
        rows, tokens = dt.shape[:2]
        shared = (rows, tokens, sizes.groups, 1, sizes.state)
        inner, written = sizes.inner, sizes.groups * sizes.state
        x = convolved[..., :inner].reshape(rows, tokens, sizes.groups, -1, sizes.head)
        b = convolved[..., inner : inner + written].reshape(shared)
        c = convolved[..., inner + written :].reshape(shared)
        by_group = (sizes.groups, sizes.heads // sizes.groups)
        log_decay = (dt * self._decay).reshape(rows, tokens, *by_group)
        dt = dt.reshape(rows, tokens, *by_group, 1)
        skipped = self._skip.reshape(*by_group, 1) * x
        if state is None:
            state = self._ops.float32(np.zeros((rows, *by_group, sizes.head, sizes.state), np.float32))
        if tokens == 1:
            y, state = self._step((dt * x)[:, 0], b[:, 0], c[:, 0], log_decay[:, 0], state)
            y = y[:, None]
        else:
            # Tokens beside the entries: [B, groups, heads of a group, T, …].
            x, b, c = (_tokens_inside(each) for each in (dt * x, b, c))
            log_decay = log_decay.swapaxes(1, 2).swapaxes(2, 3)
            said = []
            for start, stop in chunks(tokens):
                part = slice(start, stop)
                y, state = self._chunk(
                    x[..., part, :], b[..., part, :], c[..., part, :], log_decay[..., part], state
                )
                said.append(y)
            y = self._ops.concat(said, -2).swapaxes(2, 3).swapaxes(1, 2)
        return (y + skipped).reshape(rows, tokens, inner), state

    def _step(self, x: Array, b: Array, c: Array, log_decay: Array, state: Array) -> tuple[Array, Array]:
        state = self._ops.exp(log_decay)[..., None, None] * state + x[..., None] * b[..., None, :]
        return self._ops.row_sum(state * c[..., None, :])[..., 0], state

    def _chunk(self, x: Array, b: Array, c: Array, log_decay: Array, state: Array) -> tuple[Array, Array]:
        """The same over a chunk in matrix form: what its tokens write for one another, then what the state before says.

        x [.., L, head] (times dt), b and c [.., L, state], log_decay [.., L].
        """
        between, since = decays(self._ops, log_decay)
        weights = (c @ b.swapaxes(-1, -2)) * between
        y = weights @ x + since[..., None] * (c @ state.swapaxes(-1, -2))
        kept = x * between[..., -1, :, None]
        return y, since[..., -1:, None] * state + kept.swapaxes(-1, -2) @ b


def _tokens_inside(x: Array) -> Array:
    return x.swapaxes(1, 2).swapaxes(2, 3)


def published_mixer(
    ops: Ops, config: Mapping[str, Any], tensors: Tensors, name: str, sizes: StateSizes, eps: float
) -> Mamba2:
    """The block as the published models have it: the output gated, then normed in groups."""
    norm = GatedNorm(ops, tensors, f"{name}.norm", inner=sizes.inner, groups=sizes.groups, eps=eps)
    bias, taps = bool(config.get("use_bias")), bool(config.get("use_conv_bias", True))
    return Mamba2(ops, tensors, name, sizes, norm=norm, bias=bias, convolution_bias=taps)
