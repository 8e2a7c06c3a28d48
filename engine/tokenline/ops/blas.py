"""A real BLAS for MLX on a Linux CPU.

MLX's Linux CPU wheel links reference BLAS, about a hundred times slower than a tuned one for a batch. The dynamic
linker prefers symbols that are already global, so a library loaded with RTLD_GLOBAL first takes its place.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Blas:
    """Which library computes, and how its threads are set; `set_threads(None)` leaves them and returns the count."""

    name: str
    set_threads: Callable[[int | None], int]


# torch sets the count of the thread that calls; MLX computes on a thread of its own, which these reach.
_OF_THE_PROCESS = ("mkl_serv_set_num_threads", "openblas_set_num_threads")


def _torch_threads(threads: int | None) -> int:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
        library = ctypes.CDLL(str(_torch_library()))
        for name in _OF_THE_PROCESS:
            if hasattr(library, name):
                getattr(library, name)(threads)
    return torch.get_num_threads()


def _torch_library() -> Path:
    """torch carries its BLAS (MKL, on ARM OpenBLAS) inside this one."""
    import torch

    return Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def _mkl() -> ctypes.CDLL | None:
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name.startswith("libmkl_rt.so"):
            return ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
    return None


def load_blas() -> Blas:
    """Load one, before `mlx.core` is imported; "platform" where MLX brings its own (macOS), "reference" for none."""
    cores = os.cpu_count() or 1
    if platform.system() != "Linux":
        return Blas("platform", lambda threads: threads or cores)
    if "mlx.core" in sys.modules:
        # Too late to choose: what was global when mlx.core loaded is what it uses.
        name = "torch" if "torch" in sys.modules else "reference"
        return Blas(name, _torch_threads if name == "torch" else lambda threads: 1)
    if importlib.util.find_spec("torch") is not None:
        # Opening it again makes its symbols global, torch imported before or not.
        ctypes.CDLL(str(_torch_library()), mode=ctypes.RTLD_GLOBAL)
        return Blas("torch", _torch_threads)
    mkl = _mkl()
    if mkl is not None:

        def set_threads(threads: int | None) -> int:
            if threads is not None:
                mkl.MKL_Set_Num_Threads(threads)
            return int(mkl.MKL_Get_Max_Threads())

        return Blas("mkl", set_threads)
    return Blas("reference", lambda threads: 1)
