"""What joining and leaving a batch copies, to the byte: the joiner, and the batch at most once. Every kind of cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tokenline.cache import DenseCache, LatentCache, LayerCache, PairCache, RecurrentCache, WindowCache
from tokenline.ops import BACKENDS, Ops, Precision, open_ops

HEADS, SIZE, STATE = 2, 64, 48
# Bytes of a token: keys and values in float32; one latent; codes of 8 bits with a float32 scale and bias a group.
DENSE, LATENT, QUANTIZED = 2 * HEADS * SIZE * 4, SIZE * 4, 2 * HEADS * (SIZE + 2 * 4)
WINDOW = 100


def dense(ops: Ops) -> DenseCache:
    return DenseCache(ops, HEADS, SIZE)


KINDS: dict[str, tuple[Callable[[Ops], LayerCache], int]] = {
    "dense": (dense, DENSE),
    "window": (lambda ops: WindowCache(ops, WINDOW, HEADS, SIZE), DENSE),
    "latent": (lambda ops: LatentCache(ops, SIZE), LATENT),
    "quantized": (dense, QUANTIZED),
    "recurrent": (RecurrentCache, 0),
    "pair": (lambda ops: PairCache(dense(ops), RecurrentCache(ops)), DENSE),
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def append(ops: Ops, cache: Any, rows: int, tokens: int) -> None:
    if isinstance(cache, PairCache):
        append(ops, cache.attention, rows, tokens)
        append(ops, cache.recurrent, rows, tokens)
    elif isinstance(cache, RecurrentCache):
        cache.update(tokens, ops.zeros((rows, STATE)))
    else:
        heads, arrays = (1, 1) if isinstance(cache, LatentCache) else (HEADS, 2)
        state = ops.array(np.ones((rows, heads, tokens, SIZE), np.float32))
        cache.mask(tokens)
        cache.update(*[state] * arrays)


def held(kind: str, tokens: int) -> int:
    """Bytes of one row's tokens and state, as that kind keeps them of a row in a batch so long."""
    token = KINDS[kind][1]
    state = STATE * 4 if kind in ("recurrent", "pair") else 0
    kept = tokens
    if kind == "window":  # from a multiple of 256 on, with 32 tokens before the window
        kept = tokens - max(0, tokens - WINDOW + 1 - 32) // 256 * 256
    return token * kept + state


@pytest.mark.parametrize("joiner", [40, 300, 700])
@pytest.mark.parametrize("batch", [60, 520])
def test_a_join_copies_the_joiner_and_the_batch_once(
    kind: str, backend: str, batch: int, joiner: int
) -> None:
    ops = open_ops(backend, "float32", 1, Precision(kv_bits=8 if kind == "quantized" else None))
    make = KINDS[kind][0]
    caches = [make(ops) for _ in range(4)]
    for cache, tokens in zip(caches, (batch, batch - 20, batch - 50, joiner), strict=True):
        append(ops, cache, 1, tokens)
    first, *others, late = caches
    for other in others:
        first.extend(other)
    append(ops, first, 3, 1)
    before, alone = ops.counters.bytes_copied, late.nbytes
    first.extend(late)
    copied = ops.counters.bytes_copied - before
    longest = max(batch + 1, joiner)
    # What a batch so long keeps of a row that is shorter: nothing of what lies before its window.
    rows = 3 * min(held(kind, batch + 1), held(kind, longest)) + min(held(kind, joiner), held(kind, longest))
    if kind == "window":
        assert copied <= 3 * held(kind, batch + 1) + held(kind, joiner)
    else:
        assert copied == rows
    assert late.nbytes == alone
    before = ops.counters.bytes_copied
    first.filter([3])
    left = ops.counters.bytes_copied - before
    assert left <= first.projected_bytes(longest)
    if kind not in ("window", "recurrent", "pair") and joiner < batch:
        assert left == held(kind, joiner)  # its padding is not copied, and not kept
    padding = getattr(first, "attention", first).padding
    assert list(padding) == [0]
    if kind != "recurrent":
        assert first.length == joiner
        assert getattr(first, "attention", first).mask(1) is None


def test_rows_that_leave_in_turn_copy_what_stays(kind: str, backend: str) -> None:
    ops = open_ops(backend, "float32", 1, Precision(kv_bits=8 if kind == "quantized" else None))
    batch, *others = [KINDS[kind][0](ops) for _ in range(4)]
    for cache in (batch, *others):
        append(ops, cache, 1, 90)
    for other in others:
        batch.extend(other)
    append(ops, batch, 4, 1)
    for staying in (3, 2, 1):
        before = ops.counters.bytes_copied
        batch.filter(list(range(1, staying + 1)))
        # Nothing moves: buffers are taken row by row, as long as they are.
        assert ops.counters.bytes_copied - before == batch.nbytes
        assert batch.rows == staying


@pytest.mark.parametrize("tokens", [3, 256, 257, 700])
def test_what_is_projected_is_what_is_held(kind: str, backend: str, tokens: int) -> None:
    """By hand: a token's bytes times whole steps of 256; a window's until it slides; a state and the two before it."""
    ops = open_ops(backend, "float32", 1, Precision(kv_bits=8 if kind == "quantized" else None))
    cache, most = KINDS[kind][0](ops), 0
    while cache.length < tokens:
        append(ops, cache, 1, 1 if cache.length < 2 else min(90, tokens - cache.length))
        most = max(most, cache.nbytes)
    places = -(-(min(tokens, WINDOW - 1 + 32 + 255) if kind == "window" else tokens) // 256) * 256
    states = 3 * STATE * 4 if kind in ("recurrent", "pair") else 0
    assert cache.projected_bytes(tokens) == KINDS[kind][1] * places + states
    assert most <= cache.projected_bytes(tokens)
    if kind != "window":
        assert most == cache.projected_bytes(tokens)
