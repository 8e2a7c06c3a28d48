"""Arrays that tests draw, each test from its own seed: whatever ran before it, it is given the same numbers."""

from __future__ import annotations

import zlib

import numpy as np

from tokenline.ops import Ops


class Draws:
    """`random` is seeded anew for every test, by its name."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, test: str) -> None:
        self.random = np.random.default_rng(zlib.crc32(test.encode()))

    def normal(self, *shape: int) -> np.ndarray:
        """float32."""
        return self.random.standard_normal(shape).astype(np.float32)


draws = Draws()
normal = draws.normal


def read(ops: Ops, array: object) -> np.ndarray:
    return ops.read([array])[0]
