"""A text as one vector: the mean of its last hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.teacher import Teacher
from tokenline.worker import Worker


def embedding(worker: Worker, teacher: Teacher, tokens: Sequence[int], adapter: str) -> np.ndarray:
    """float32 [width], of length 1. Piece by piece, each a call of its own: rows that decode step between two.

    Every family can give it, as every family ends in one state for each token. The mean and not the last state: a
    decoder that was not trained for embeddings has in its last state what comes next, and not what the text was.
    """
    caches = worker.call(teacher.new_caches).result()
    total: np.ndarray | float = 0.0
    for piece in PrefillPlan.of(len(tokens), []).pieces():
        states = worker.call(
            partial(teacher.hidden, tokens[piece.start : piece.stop], caches, adapter)
        ).result()
        total = total + states.astype(np.float64).sum(axis=0)
    vector = np.asarray(total) / len(tokens)
    return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)
