"""Rows and draws for the sampler's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from drawn_arrays import draws

from tokenline.decode.sampling import Drawn, RowDraw, RowParameters, sample
from tokenline.decode.sampling.breakers import Breakers
from tokenline.ops import BACKENDS, Ops, open_ops
from tokenline.request import Sampling

OPS: dict[str, Ops] = {name: open_ops(name, "float32", 1) for name in BACKENDS}


def logits_of(rows: int, vocabulary: int = 50, spread: float = 3) -> np.ndarray:
    return draws.normal(rows, vocabulary) * np.float32(spread)


def row(
    seed: int = 0,
    top_logprobs: int | None = None,
    *,
    at: int = 0,
    history: Sequence[int] = (),
    mu: float | None = None,
    breakers: Breakers | None = None,
    eos: Sequence[int] = (),
    raw: bool = False,
    **settings: object,
) -> RowDraw:
    parameters = RowParameters(
        Sampling(**settings), seed, top_logprobs, raw, frozenset(eos), {} if breakers is None else breakers
    )
    return RowDraw(parameters, at, list(history), mu)


def draw(ops: Ops, logits: np.ndarray, rows: Sequence[RowDraw]) -> Drawn:
    """Drawn and read."""
    return sample(ops, ops.float32(logits), rows).read(ops)


def processed(ops: Ops, logits: np.ndarray, **settings: object) -> np.ndarray:
    """The log probabilities, before temperature, of what is left over the whole vocabulary, as a row reports them."""
    size = logits.shape[-1]
    asked = {"temperature": 1.0, **settings}
    drawn = draw(ops, logits, [row(0, size, **asked)])
    full = np.full(size, -np.inf, np.float32)
    full[drawn.alternatives[0]] = drawn.logprobs[0, 1:]
    return full


def log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = np.asarray(logits, np.float64)
    wide = wide - wide[np.isfinite(wide)].max()
    return wide - np.log(np.exp(wide).sum())


def decided_logits(size: int, spread: float, edges: Callable[[np.ndarray], Iterable[float]]) -> np.ndarray:
    """float32 [1, size] of which no token stands so near an edge of mass that another order of adding moves it across.

    float32 sums of so many tokens are right to about 5e-6; `edges` are the distances from an edge to the masses around
    it, in float64."""
    while True:
        logits = logits_of(1, size, spread)
        if min(edges(logits[0].astype(np.float64))) > 2e-5:
            return logits


def edge(logits: np.ndarray, mass: float, order: np.ndarray | None = None) -> float:
    """How far the mass is from the nearest sum of the first tokens, likeliest first or in the order given."""
    logprobs = log_softmax(logits)
    sums = np.cumsum(np.exp(logprobs[np.argsort(-logprobs) if order is None else order]))
    return float(np.abs(sums - mass).min())


def same_distribution(ours: np.ndarray, theirs: np.ndarray) -> None:
    """`theirs` may be logits: only differences of logits matter."""
    theirs = log_softmax(theirs)
    np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(theirs))
    kept = np.isfinite(theirs)
    np.testing.assert_allclose(ours[kept], theirs[kept], rtol=1e-4, atol=2e-4)
