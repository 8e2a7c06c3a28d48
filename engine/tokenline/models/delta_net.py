"""The gated delta net's mixer: a state that is corrected towards what it should say (Yang et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenline.cache import RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.models.convolution import CausalConvolution
from tokenline.models.forward import Forward
from tokenline.models.layers import Linear, Rows
from tokenline.models.pieces import chunks, decays
from tokenline.ops.arrays import dense
from tokenline.ops.base import Array, Ops

_NORM_EPS = 1e-6  # of the lengths of keys and queries


@dataclass(frozen=True)
class DeltaSizes:
    width: int
    key_heads: int
    value_heads: int  # each key head serves as many in a row
    key: int  # entries of a key or query
    value: int
    taps: int  # of the convolution

    @property
    def keys(self) -> int:
        return self.key_heads * self.key

    @property
    def values(self) -> int:
        return self.value_heads * self.value

    def checked(self) -> DeltaSizes:
        counts = (self.width, self.key_heads, self.value_heads, self.key, self.value, self.taps)
        if any(not isinstance(n, int) or n < 1 for n in counts) or self.value_heads % self.key_heads:
            raise CheckpointError(
                f"the configuration's sizes make no delta net: {counts}", "mend config.json"
            )
        return self


class DeltaNet:
    """Projections give q, k and v (convolved together, then silu), a gate z, and for every head a rate b and a step a.

    With decay exp(-exp(A_log) * softplus(a + dt_bias)) and rate sigmoid(b), a head's state S [key, value] goes on as
    S = decay * S, then S = S + rate * k outer (v - k S), and says q S; q and k have length 1, q is divided by
    sqrt(key). What is said is normed by head and multiplied by silu(z). `parts` names the projections of which the rows
    are q, k, v, z, b and a in this order, `rows` how a checkpoint's are put into it.
    """

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        sizes: DeltaSizes,
        *,
        parts: Sequence[tuple[str, int]],
        rows: Sequence[Rows | None] | None = None,
        eps: float,
    ) -> None:
        self._ops, self._sizes, self._eps = ops, sizes.checked(), eps
        named = [(f"{name}.{part}", count) for part, count in parts]
        self._in = Linear(ops, tensors, named, sizes.width, rows=rows)
        self._convolution = CausalConvolution(
            ops,
            tensors,
            f"{name}.conv1d",
            channels=2 * sizes.keys + sizes.values,
            taps=sizes.taps,
            bias=False,
        )
        self._out = Linear(ops, tensors, [(f"{name}.out_proj", sizes.width)], sizes.values)

        def by_head(part: str) -> np.ndarray:
            return dense(tensors.take(f"{name}.{part}", (sizes.value_heads,)))

        self._dt_bias = ops.float32(by_head("dt_bias"))
        self._decay = ops.float32(-np.exp(by_head("A_log")))
        self._norm = ops.array(dense(tensors.take(f"{name}.norm.weight", (sizes.value,))))

    @property
    def nbytes(self) -> int:
        return self._in.nbytes + self._out.nbytes

    def __call__(self, x: Array, forward: Forward, cache: RecurrentCache) -> Array:
        ops, sizes = self._ops, self._sizes
        rows, tokens = x.shape[:2]
        projected = self._in(x)
        convolved = 2 * sizes.keys + sizes.values
        gate_end = convolved + sizes.values
        carried, state = cache.arrays or (None, None)
        mixed, carried = self._convolution(projected[..., :convolved], carried)
        gate = projected[..., convolved:gate_end].reshape(rows, tokens, sizes.value_heads, sizes.value)
        rate = ops.sigmoid(ops.to_float32(projected[..., gate_end : gate_end + sizes.value_heads]))
        step = ops.to_float32(projected[..., gate_end + sizes.value_heads :])
        log_decay = self._decay * ops.softplus(step + self._dt_bias)
        y, state = self._scan(ops.to_float32(ops.silu(mixed)), rate, log_decay, state)
        cache.update(forward.tokens, carried, state)
        y = ops.rms_norm(ops.like(y, x), self._norm, self._eps) * ops.silu(gate)
        return self._out(y.reshape(rows, tokens, sizes.values))

    def _scan(self, mixed: Array, rate: Array, log_decay: Array, state: Array | None) -> tuple[Array, Array]:
        """mixed [B, T, q, k and v], rate and log_decay [B, T, heads], float32 -> [B, T, heads, value] and the state."""
        sizes = self._sizes
        rows, tokens = rate.shape[:2]
        by_group = (sizes.key_heads, sizes.value_heads // sizes.key_heads)
        shared = (rows, tokens, sizes.key_heads, 1, sizes.key)
        q = self._of_length_one(mixed[..., : sizes.keys].reshape(shared)) * sizes.key**-0.5
        k = self._of_length_one(mixed[..., sizes.keys : 2 * sizes.keys].reshape(shared))
        v = mixed[..., 2 * sizes.keys :].reshape(rows, tokens, *by_group, sizes.value)
        rate, log_decay = (each.reshape(rows, tokens, *by_group) for each in (rate, log_decay))
        if state is None:
            state = self._ops.float32(np.zeros((rows, *by_group, sizes.key, sizes.value), np.float32))
        if tokens == 1:
            y, state = self._step(q[:, 0], k[:, 0], v[:, 0], rate[:, 0], log_decay[:, 0], state)
            return y.reshape(rows, 1, sizes.value_heads, sizes.value), state
        # Tokens beside the entries: [B, key heads, heads of a key head, T, …].
        q, k, v, rate, log_decay = (each.swapaxes(1, 2).swapaxes(2, 3) for each in (q, k, v, rate, log_decay))
        said = []
        for start, stop in chunks(tokens):
            part = slice(start, stop)
            y, state = self._chunk(
                q[..., part, :],
                k[..., part, :],
                v[..., part, :],
                rate[..., part],
                log_decay[..., part],
                state,
            )
            said.append(y)
        y = self._ops.concat(said, -2).swapaxes(2, 3).swapaxes(1, 2)
        return y.reshape(rows, tokens, sizes.value_heads, sizes.value), state

    def _of_length_one(self, x: Array) -> Array:
        return x / (self._ops.row_sum(x * x) + _NORM_EPS) ** 0.5

    def _step(
        self, q: Array, k: Array, v: Array, rate: Array, log_decay: Array, state: Array
    ) -> tuple[Array, Array]:
        state = self._ops.exp(log_decay)[..., None, None] * state
        wrong = rate[..., None] * (v - (k[..., None, :] @ state)[..., 0, :])
        state = state + k[..., None] * wrong[..., None, :]
        return (q[..., None, :] @ state)[..., 0, :], state

    def _chunk(
        self, q: Array, k: Array, v: Array, rate: Array, log_decay: Array, state: Array
    ) -> tuple[Array, Array]:
        """The same over a chunk in matrix form.

        What token i corrects, w[i] = rate[i] * (v[i] - k[i] S[i]), depends on what those before it corrected by the
        products of their keys: (I + A) w = rate * (v - what the state before the chunk says), with A strictly lower
        triangular. q, k [.., L, key], v [.., L, value], rate, log_decay [.., L].
        """
        ops = self._ops
        between, since = decays(ops, log_decay)
        below = ops.array(np.tril(np.ones((k.shape[-2],) * 2, dtype=bool), -1))
        overlaps = ops.where(below, (k @ k.swapaxes(-1, -2)) * between, 0.0) * rate[..., None]
        said_before = since[..., None] * (k @ state)
        wrong = solve_unit_lower(ops, overlaps, rate[..., None] * (v - said_before))
        y = ((q @ k.swapaxes(-1, -2)) * between) @ wrong + since[..., None] * (q @ state)
        kept = k * between[..., -1, :, None]
        return y, since[..., -1:, None] * state + kept.swapaxes(-1, -2) @ wrong


def solve_unit_lower(ops: Ops, lower: Array, right: Array) -> Array:
    """w of (I + lower) w = right, lower [.., L, L] strictly lower triangular.

    By halves: those below are solved once what those above have to do with them is taken off. Substitution, as stable
    as row by row, in products of matrices and not of rows.
    """
    size = lower.shape[-1]
    if size <= _ROWS:
        solved = [right[..., :1, :]]
        for row in range(1, size):
            above = ops.concat(solved, -2)
            solved.append(right[..., row : row + 1, :] - lower[..., row : row + 1, :row] @ above)
        return ops.concat(solved, -2)
    half = size // 2
    first = solve_unit_lower(ops, lower[..., :half, :half], right[..., :half, :])
    rest = right[..., half:, :] - lower[..., half:, :half] @ first
    return ops.concat([first, solve_unit_lower(ops, lower[..., half:, half:], rest)], -2)


_ROWS = 8  # solved one after another
