"""Attention on each backend against its formula in float64."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_arrays import normal, read

from tokenline.ops import Ops


def attention_by_hand(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    seen: np.ndarray,
    scale: float,
    cap: float | None = None,
    sinks: np.ndarray | None = None,
) -> np.ndarray:
    """In float64; a sink is one more key of the softmax, whose value is zero."""
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1).astype(np.float64), np.repeat(v, groups, 1).astype(np.float64)
    scores = q @ k.swapaxes(-1, -2) * scale
    if cap is not None:
        scores = cap * np.tanh(scores / cap)
    scores = np.where(seen, scores, -np.inf)
    if sinks is not None:
        sink = np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))
        scores = np.concatenate([scores, sink], -1)
        v = np.concatenate([v, np.zeros_like(v[:, :, :1])], 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (5, 5), (3, 9)])
def test_causal_attention_aligns_the_last_query_with_the_last_key(ops: Ops, queries: int, keys: int) -> None:
    q, k, v = normal(2, 4, queries, 8), normal(2, 2, keys, 8), normal(2, 2, keys, 8)
    seen = np.tril(np.ones((queries, keys), bool), keys - queries)[None, None]
    mask = "causal" if queries > 1 else None
    got = read(ops, ops.attention(ops.array(q), ops.array(k), ops.array(v), mask, 0.3))
    np.testing.assert_allclose(got, attention_by_hand(q, k, v, seen, 0.3), rtol=1e-4, atol=1e-5)


def test_attention_under_a_mask_of_its_own(ops: Ops) -> None:
    q, k, v = normal(2, 4, 1, 8), normal(2, 2, 6, 8), normal(2, 2, 6, 8)
    seen = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]], bool)[:, None, None]
    got = read(ops, ops.attention(ops.array(q), ops.array(k), ops.array(v), ops.array(seen), 0.5))
    np.testing.assert_allclose(got, attention_by_hand(q, k, v, seen, 0.5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("sinks", [None, np.array([-9.0, 0.5, 2.0, 6.0], np.float32)], ids=["", "sinks"])
@pytest.mark.parametrize("cap", [None, 1.5, 50.0])
@pytest.mark.parametrize("mask", [None, "causal", "array", "array per row"])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (5, 5), (3, 9)])
def test_attention_with_capped_scores_and_sinks(
    ops: Ops,
    queries: int,
    keys: int,
    mask: str | None,
    cap: float | None,
    sinks: np.ndarray | None,
    kv_heads: int,
) -> None:
    """Values of another size than keys, as latent attention has them; scores far into the cap."""
    q, k, v = normal(2, 4, queries, 8) * 3, normal(2, kv_heads, keys, 8), normal(2, kv_heads, keys, 6)
    causal = np.tril(np.ones((queries, keys), bool), keys - queries)[None, None]
    window = causal & ~np.tril(np.ones((queries, keys), bool), keys - queries - 2)[None, None]
    rows = np.concatenate([causal, window])
    seen = {None: np.ones_like(causal), "causal": causal, "array": window, "array per row": rows}[mask]
    got = ops.attention(
        ops.array(q),
        ops.array(k),
        ops.array(v),
        ops.array(seen) if mask is not None and mask != "causal" else mask,
        0.7,
        cap=cap,
        sinks=None if sinks is None else ops.array(sinks),
    )
    expected = attention_by_hand(q, k, v, seen, 0.7, cap, sinks)
    np.testing.assert_allclose(read(ops, got), expected, rtol=1e-4, atol=2e-5)


def test_a_sink_takes_its_part_and_a_cap_bends_scores(ops: Ops) -> None:
    """By hand: two scores of 0 and a sink of log 2 leave each value a quarter; a score of 4 under a cap of 2 is
    2 tanh 2."""
    q, k = np.zeros((1, 1, 1, 1), np.float32), np.zeros((1, 1, 2, 1), np.float32)
    v = np.array([1.0, 3.0], np.float32).reshape(1, 1, 2, 1)
    sink = ops.array(np.log([2.0]).astype(np.float32))
    got = read(ops, ops.attention(ops.array(q), ops.array(k), ops.array(v), None, 1.0, sinks=sink))
    np.testing.assert_allclose(got.ravel(), [0.25 * 1 + 0.25 * 3], rtol=1e-6)
    q, k = q + 1, np.array([4.0, 0.0], np.float32).reshape(1, 1, 2, 1)
    v = np.array([1.0, 0.0], np.float32).reshape(1, 1, 2, 1)
    got = read(ops, ops.attention(ops.array(q), ops.array(k), ops.array(v), None, 1.0, cap=2.0))
    np.testing.assert_allclose(got.ravel(), [1 / (1 + np.exp(-2 * np.tanh(2)))], rtol=1e-6)
