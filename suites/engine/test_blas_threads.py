"""How many threads a product of matrices runs on is what was asked for, whichever thread computes it."""

from __future__ import annotations

import subprocess
import sys

import pytest

OURS = "from tokenline.ops import open_ops; open_ops('mlx', 'float32', {threads})"
MLX_LM = "from paritygate.arms.mlx_lm_model import load_blas; load_blas({threads})"
# MLX's stream is there after the first line; what the products add are the BLAS's own.
COUNTED = """
import os
{opened}
import mlx.core as mx
square = mx.random.normal((1024, 1024))
mx.eval(square + 1)
before = len(os.listdir("/proc/self/task"))
for _ in range(3):
    mx.eval(square @ square)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.parametrize("opened", [OURS, MLX_LM], ids=["tokenline", "mlx-lm"])
@pytest.mark.parametrize("threads", [1, 2])
def test_mlx_computes_on_as_many_threads_as_asked(opened: str, threads: int) -> None:
    """The one that computes is there already: so many more are started."""
    program = COUNTED.format(opened=opened.format(threads=threads))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == threads - 1
