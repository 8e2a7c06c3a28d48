"""Arrays that a test file draws from a generator of its own, and reads back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tokenline.ops import Ops


def normals(random: np.random.Generator) -> Callable[..., np.ndarray]:
    """Draws float32 arrays of a given shape."""
    return lambda *shape: random.standard_normal(shape).astype(np.float32)


def read(ops: Ops, array: object) -> np.ndarray:
    return ops.read([array])[0]
