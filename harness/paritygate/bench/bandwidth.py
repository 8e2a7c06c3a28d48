"""How fast this machine reads memory: no decode step can be faster than reading every weight once."""

from __future__ import annotations

import time

import numpy as np

ARRAY_BYTES = 192 << 20
REPEATS = 4


def read_bandwidth() -> float:
    """Bytes a second of a streaming read far larger than any cache, at best, with this process's BLAS threads."""
    values = np.ones(ARRAY_BYTES // 4, dtype=np.float32)
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        np.dot(values, values)
        best = min(best, time.perf_counter() - started)
    return values.nbytes / best
