"""mlx-lm's model over a Hugging Face directory, with a BLAS that is worth measuring."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any


def load_blas(threads: int) -> None:
    """Load torch's BLAS with global symbols, before MLX is imported.

    MLX's Linux wheel links the reference BLAS; one loaded before it with global symbols is used instead. A tokenizer
    may have imported torch already, with local symbols, so its library is opened again. torch sets the count of the
    calling thread alone, and MLX computes on a thread of its own: the BLAS is told for the whole process.
    """
    import torch

    torch.set_num_threads(threads)
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if path.is_file():
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        for name in ("mkl_serv_set_num_threads", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(threads)


def load_mlx(directory: Path, *, threads: int, dtype: str = "float32") -> Any:
    """The model, its parameters in `dtype`."""
    load_blas(threads)
    import mlx.core as mx
    from mlx_lm.utils import load_model

    model, _ = load_model(directory)
    model.set_dtype(getattr(mx, dtype))
    mx.eval(model.parameters())
    return model
