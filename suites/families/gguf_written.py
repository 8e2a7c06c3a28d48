"""Tiny checkpoints as GGUF files, and what this engine says of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf_files import write_gguf
from gguf_forms import FORMS
from gguf_told import TOLD, told
from tiny_checkpoints import MODELS

from tokenline.client import Model

TOKENS = [int(token) for token in np.random.default_rng(5).integers(3, 259, 120)]


@dataclass(frozen=True)
class Written:
    name: str
    directory: Path
    file: Path


def family_of(name: str) -> str:
    """nemotron_h has two forms: layers of MLPs, and layers of experts."""
    return name.removesuffix("_moe") if name == "nemotron_h_moe" else name


def written_as(name: str, at: Path, **more: Any) -> Written:
    """`told` is what the checkpoint is told beside what its form needs."""
    directory = MODELS / family_of(name) / "checkpoint"
    what = more.pop("told", TOLD.get(name))
    if what is not None:
        directory = told(directory, at / family_of(name) / "checkpoint", what)
    return Written(name, directory, write_gguf(directory, at / f"{name}.gguf", FORMS[name], **more))


def said(path: Path, backend: str = "torch") -> np.ndarray:
    with Model(str(path), backend=backend, dtype="float32", threads=1) as model:
        return model.logits(TOKENS)
