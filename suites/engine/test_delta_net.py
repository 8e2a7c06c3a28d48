"""The gated delta net's mixer against the paper's recurrence, token by token in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tokenline.cache import RecurrentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.models.delta_net import DeltaNet, DeltaSizes, solve_unit_lower
from tokenline.models.forward import Forward
from tokenline.ops import Ops

WIDTH, TOKENS, EPS = 24, 150, 1e-6
SIZES = DeltaSizes(WIDTH, key_heads=2, value_heads=6, key=12, value=8, taps=4)
CONVOLVED = 2 * SIZES.keys + SIZES.values


def weights(*, far: bool) -> dict[str, np.ndarray]:
    """`far`: keys that repeat (so that corrections build on one another) and decays from none to all at once."""
    draw = np.random.default_rng(3)
    made = {
        "in_proj": draw.normal(0, 0.1 if far else 0.3, (CONVOLVED + SIZES.values + 12, WIDTH)),
        "conv1d": draw.normal(1 if far else 0, 0.4, (CONVOLVED, 1, SIZES.taps)),
        "norm": draw.normal(1, 0.2, SIZES.value),
        "out_proj": draw.normal(0, 0.2, (WIDTH, SIZES.values)),
    }
    made = {f"net.{name}.weight": array for name, array in made.items()}
    made["net.dt_bias"] = draw.normal(0, 3 if far else 0.5, SIZES.value_heads)
    made["net.A_log"] = np.log(np.linspace(0.001, 16 if far else 1, SIZES.value_heads))
    return {name: array.astype(np.float32) for name, array in made.items()}


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).sum() + 1e-6)


def recurrence(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """x [T, width] -> [T, width]: equation 10 of the paper as it is written, S [value, key]."""
    w = {name.removeprefix("net."): array.astype(np.float64) for name, array in w.items()}
    projected = x.astype(np.float64) @ w["in_proj.weight"].T
    inputs, gates = projected[:, :CONVOLVED], projected[:, CONVOLVED : CONVOLVED + SIZES.values]
    rates, steps = projected[:, -12:-6], projected[:, -6:]
    states = np.zeros((SIZES.value_heads, SIZES.value, SIZES.key))
    said = []
    for t in range(len(x)):
        window = [inputs[t - k] if t >= k else np.zeros(CONVOLVED) for k in reversed(range(SIZES.taps))]
        mixed = silu(sum(w["conv1d.weight"][:, 0, k] * row for k, row in enumerate(window)))
        queries = mixed[: SIZES.keys].reshape(SIZES.key_heads, SIZES.key)
        keys = mixed[SIZES.keys : 2 * SIZES.keys].reshape(SIZES.key_heads, SIZES.key)
        values = mixed[2 * SIZES.keys :].reshape(SIZES.value_heads, SIZES.value)
        y = np.zeros((SIZES.value_heads, SIZES.value))
        for head in range(SIZES.value_heads):
            of_keys = head // (SIZES.value_heads // SIZES.key_heads)
            q, k = unit(queries[of_keys]), unit(keys[of_keys])
            alpha = np.exp(-np.exp(w["A_log"][head]) * np.logaddexp(0, steps[t, head] + w["dt_bias"][head]))
            beta = 1 / (1 + np.exp(-rates[t, head]))
            identity = np.eye(SIZES.key)
            states[head] = alpha * states[head] @ (identity - beta * np.outer(k, k))
            states[head] += beta * np.outer(values[head], k)
            y[head] = states[head] @ q / np.sqrt(SIZES.key)
        y = y / np.sqrt((y**2).mean(-1, keepdims=True) + EPS) * w["norm.weight"]
        said.append(w["out_proj.weight"] @ (y.reshape(-1) * silu(gates[t])))
    return np.stack(said)


@pytest.mark.parametrize(
    "pieces", [[TOKENS], [1] * TOKENS, [2, 64, 1, 65, 18]], ids=["one", "steps", "mixed"]
)
@pytest.mark.parametrize("far", [False, True], ids=["even", "far"])
def test_the_mixer_is_the_recurrence(ops: Ops, pieces: list[int], far: bool) -> None:
    w = weights(far=far)
    rows = CONVOLVED + SIZES.values + 2 * SIZES.value_heads
    net = DeltaNet(ops, Tensors(w, lambda name: w[name]), "net", SIZES, parts=[("in_proj", rows)], eps=EPS)
    cache = RecurrentCache(ops)
    x = np.random.default_rng(4).normal(1 if far else 0, 1, (TOKENS, WIDTH)).astype(np.float32)
    said, start = [], 0
    for piece in pieces:
        said.append(net(ops.array(x[None, start : start + piece]), Forward(piece), cache))
        start += piece
    ours = np.concatenate([part[0] for part in ops.read(said)])
    theirs = recurrence(w, x)
    assert np.abs(ours - theirs).max() / np.ptp(theirs) < 1e-5
    assert cache.length == TOKENS


@pytest.mark.parametrize("size", [1, 2, 9, 33, 64])
def test_triangular_systems_are_solved_as_numpy_solves_them(ops: Ops, size: int) -> None:
    draw = np.random.default_rng(size)
    lower = np.tril(draw.uniform(-1, 1, (2, 3, size, size)), -1) * 0.5
    right = draw.normal(0, 1, (2, 3, size, 5))
    expected = np.linalg.solve(np.eye(size) + lower, right)
    [ours] = ops.read([solve_unit_lower(ops, ops.array(lower), ops.array(right))])
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_heads_that_no_key_head_divides_are_refused() -> None:
    with pytest.raises(CheckpointError, match="delta net"):
        DeltaSizes(WIDTH, key_heads=4, value_heads=6, key=12, value=8, taps=4).checked()
