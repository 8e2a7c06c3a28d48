"""Two dtypes in one process: nothing that was made for one is found by the other."""

from __future__ import annotations

import numpy as np
import pytest

from tokenline.ops import open_ops

# bfloat16 has eight bits of a number: 1 + 2^-9 is 1 there, and itself in float32.
FINE = 1 + 2.0**-9


@pytest.mark.parametrize("order", [("float32", "bfloat16", "float32"), ("bfloat16", "float32", "bfloat16")])
def test_each_dtype_computes_as_itself_whatever_came_before(backend: str, order: tuple[str, ...]) -> None:
    for dtype in order:
        ops = open_ops(backend, dtype, 1)
        x = ops.array(np.full((1, 1, 32), FINE, np.float32))
        weight = ops.weight(np.eye(32, dtype=np.float32))
        [said] = ops.read([ops.linear(x, weight)])
        assert ops.dtype == dtype
        np.testing.assert_array_equal(said, np.full((1, 1, 32), FINE if dtype == "float32" else 1.0))
