"""Mamba 2's mixer against the paper's recurrence, token by token in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tokenline.cache import RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.models.forward import Forward
from tokenline.models.mamba2 import GatedNorm, Mamba2, StateSizes, step_limits
from tokenline.ops import Ops

WIDTH, TOKENS, EPS = 24, 150, 1e-5


def weights(sizes: StateSizes, *, far: bool) -> dict[str, np.ndarray]:
    """`far`: some heads forget within a token and some never, as a trained model's do."""
    draw = np.random.default_rng(3)
    rows = sizes.inner + sizes.convolved + sizes.heads
    made = {
        "in_proj.weight": draw.normal(0, 0.3, (rows, sizes.width)),
        "conv1d.weight": draw.normal(0, 0.4, (sizes.convolved, 1, sizes.taps)),
        "conv1d.bias": draw.normal(0, 0.2, sizes.convolved),
        "dt_bias": draw.normal(0, 3 if far else 0.5, sizes.heads),
        "A_log": np.log(np.linspace(0.01, 60, sizes.heads) if far else np.linspace(1, 8, sizes.heads)),
        "D": draw.normal(0, 1, sizes.heads),
        "norm.weight": draw.normal(1, 0.2, sizes.inner),
        "out_proj.weight": draw.normal(0, 0.2, (sizes.width, sizes.inner)),
    }
    return {f"mixer.{name}": array.astype(np.float32) for name, array in made.items()}


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def recurrence(w: dict[str, np.ndarray], sizes: StateSizes, x: np.ndarray, *, gate_first: bool) -> np.ndarray:
    """x [T, width] -> [T, width]: equations (Dao and Gu 2024, section 2 and figure 6) as they are written."""
    w = {name.removeprefix("mixer."): array.astype(np.float64) for name, array in w.items()}
    x = x.astype(np.float64)
    projected = x @ w["in_proj.weight"].T
    gates, dts = projected[:, : sizes.inner], projected[:, sizes.inner + sizes.convolved :]
    inputs = projected[:, sizes.inner : sizes.inner + sizes.convolved]
    dts = np.clip(np.logaddexp(0, dts + w["dt_bias"]), *sizes.limits)
    state = np.zeros((sizes.heads, sizes.head, sizes.state))
    said = []
    for t in range(len(x)):
        window = [inputs[t - k] if t >= k else np.zeros(sizes.convolved) for k in reversed(range(sizes.taps))]
        mixed = silu(
            sum(w["conv1d.weight"][:, 0, k] * row for k, row in enumerate(window)) + w["conv1d.bias"]
        )
        shared = sizes.groups * sizes.state
        values = mixed[: sizes.inner].reshape(sizes.heads, sizes.head)
        writes = mixed[sizes.inner : sizes.inner + shared].reshape(sizes.groups, sizes.state)
        reads = mixed[sizes.inner + shared :].reshape(sizes.groups, sizes.state)
        y = np.zeros((sizes.heads, sizes.head))
        for head in range(sizes.heads):
            group = head // (sizes.heads // sizes.groups)
            decay = np.exp(-np.exp(w["A_log"][head]) * dts[t, head])
            state[head] = decay * state[head] + dts[t, head] * np.outer(values[head], writes[group])
            y[head] = state[head] @ reads[group] + w["D"][head] * values[head]
        y, gate = y.reshape(-1), silu(gates[t])
        y = y * gate if gate_first else y
        parts = y.reshape(sizes.groups, -1)
        parts = parts / np.sqrt((parts**2).mean(-1, keepdims=True) + EPS)
        y = parts.reshape(-1) * w["norm.weight"]
        said.append(w["out_proj.weight"] @ (y if gate_first else y * gate))
    return np.stack(said)


@pytest.mark.parametrize(
    "pieces", [[TOKENS], [1] * TOKENS, [2, 64, 1, 65, 18]], ids=["one", "steps", "mixed"]
)
@pytest.mark.parametrize("far", [False, True], ids=["even", "far"])
@pytest.mark.parametrize("limits", [(0.0, float("inf")), (0.05, 2.0)], ids=["free", "limited"])
def test_the_mixer_is_the_recurrence(
    ops: Ops, pieces: list[int], far: bool, limits: tuple[float, float]
) -> None:
    sizes = StateSizes(WIDTH, heads=6, head=8, groups=2, state=12, taps=4, limits=limits)
    w = weights(sizes, far=far)
    gate_first = not far
    tensors = Tensors(w, lambda name: w[name])
    norm = GatedNorm(ops, tensors, "mixer.norm", inner=sizes.inner, groups=2, eps=EPS, gate_first=gate_first)
    mixer, cache = Mamba2(ops, tensors, "mixer", sizes, norm=norm), RecurrentCache(ops)
    x = np.random.default_rng(4).normal(0, 1, (TOKENS, WIDTH)).astype(np.float32)
    said, start = [], 0
    for piece in pieces:
        said.append(mixer(ops.array(x[None, start : start + piece]), Forward(piece), cache))
        start += piece
    ours = np.concatenate([part[0] for part in ops.read(said)])
    theirs = recurrence(w, sizes, x, gate_first=gate_first)
    assert np.abs(ours - theirs).max() / np.ptp(theirs) < 3e-6
    assert cache.length == TOKENS


def test_limits_are_read_as_transformers_writes_infinity() -> None:
    assert step_limits([0.001, {"__float__": "Infinity"}]) == (0.001, float("inf"))


def test_heads_that_no_group_divides_are_refused() -> None:
    with pytest.raises(CheckpointError, match="state space"):
        StateSizes(WIDTH, heads=6, head=8, groups=4, state=12, taps=4).checked()
