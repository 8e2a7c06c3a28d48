"""A piece of a prompt in chunks, for layers whose state decays token by token: as matrices, not one after another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenline.ops.base import Array, Ops

# Tokens of a chunk: a chunk costs the square of its length, and every chunk begins with a product by the state.
CHUNK = 64


def chunks(tokens: int) -> Iterator[tuple[int, int]]:
    """Where the chunks of a piece begin and end, from the piece's first token on."""
    for start in range(0, tokens, CHUNK):
        yield start, min(start + CHUNK, tokens)


def decays(ops: Ops, log_decay: Array) -> tuple[Array, Array]:
    """log_decay float32 [..., L] -> what is left of token j when i has come [..., i, j], zero above the diagonal, and
    what is left of the state before the chunk [..., i].

    Sums are taken from j on, not as differences of sums from the chunk's beginning, which lose the small ones behind
    a large one.
    """
    tokens = log_decay.shape[-1]
    after = np.triu(np.ones((tokens, tokens), dtype=bool), 1)  # [j, i]: i comes after j
    sums = ops.cumsum(ops.where(ops.array(after), log_decay[..., None, :], 0.0))
    lasting = ops.where(ops.array(after | np.eye(tokens, dtype=bool)), ops.exp(sums), 0.0)
    return lasting.swapaxes(-1, -2), ops.exp(ops.cumsum(log_decay))
