"""Array backends behind one surface."""

from __future__ import annotations

import importlib.util
import platform

from tokenline.errors import BackendError
from tokenline.ops.base import Array, Ops, Weight, WorkCounters
from tokenline.ops.precision import Precision

__all__ = ["BACKENDS", "DTYPES", "Array", "Ops", "Precision", "Weight", "WorkCounters", "open_ops"]

BACKENDS = ("torch", "mlx")
DTYPES = ("auto", "float32", "bfloat16", "float16", "quantized")


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _automatic_backend() -> str:
    if platform.system() == "Darwin" and _installed("mlx"):
        return "mlx"
    for backend in BACKENDS:
        if _installed(backend):
            return backend
    raise BackendError("neither torch nor mlx is installed", "pip install 'paritygate[engine,torch]'")


# More are no use to any machine, and so many that the system has no stacks for end the process.
MOST_THREADS = 1024


def open_ops(
    backend: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    precision: Precision | None = None,
) -> Ops:
    """The backend's surface. dtype "auto" is float32 on a CPU and bfloat16 on an accelerator.

    Errors: BackendError for an unknown or missing backend, an unknown dtype, or fewer than one thread.
    """
    if backend == "auto":
        backend = _automatic_backend()
    if backend not in BACKENDS:
        raise BackendError(f"there is no backend {backend!r}", f"use one of auto, {', '.join(BACKENDS)}")
    if dtype not in DTYPES:
        raise BackendError(f"there is no dtype {dtype!r}", f"use one of {', '.join(DTYPES)}")
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise BackendError(f"{threads} threads cannot compute", f"use 1 to {MOST_THREADS}")
    if not _installed(backend):
        raise BackendError(
            f"the {backend} backend needs the package {backend}", f"pip install 'paritygate[{backend}]'"
        )
    # Imported here because each takes seconds and most commands need neither.
    if backend == "torch":
        from tokenline.ops.torch import TorchOps

        return TorchOps(dtype, threads, precision)
    from tokenline.ops.mlx import MlxOps

    return MlxOps(dtype, threads, precision)
