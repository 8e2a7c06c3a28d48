"""A checkpoint as Hugging Face's libraries read it: a directory, or a .gguf file.

What is loaded here serves arms and the oracles of goldens alike. Heavy libraries are imported by what needs them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paritygate.arms.base import ArmError
from paritygate.digest import file_digest
from paritygate.scratch import scratch

DTYPES = ("float32", "bfloat16", "float16")


def checkpoint_at(model: str, arm: str) -> Path:
    """The checkpoint's path. Raises ArmError where MODEL is neither a directory with a config nor a .gguf file."""
    path = Path(model).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return path
    if (path / "config.json").is_file():
        return path
    raise ArmError(
        f"arm {arm}: {model} is no Hugging Face directory and no .gguf file: name one as [checkpoint] model"
    )


def weight_files(path: Path) -> list[Path]:
    """The files that hold the weights, in a fixed order."""
    return [path] if path.is_file() else sorted(path.glob("*.safetensors")) or sorted(path.glob("*.bin"))


def weights_hash(path: Path) -> str:
    """sha256 over the sha256 digests of the weight files: what tokenline's manifest calls by the same name."""
    digest = hashlib.sha256()
    for file in weight_files(path):
        digest.update(bytes.fromhex(file_digest(file)))
    return digest.hexdigest()


def _source(path: Path) -> tuple[str, dict[str, str]]:
    return (str(path.parent), {"gguf_file": path.name}) if path.is_file() else (str(path), {})


def load_tokenizer(path: Path) -> Any:
    """transformers' tokenizer of a checkpoint."""
    from transformers import AutoTokenizer

    place, options = _source(path)
    return AutoTokenizer.from_pretrained(place, **options)


def load_model(path: Path, *, dtype: str = "float32", threads: int = 1) -> Any:
    """transformers' model of a checkpoint on the CPU, ready to run."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    place, options = _source(path)
    return AutoModelForCausalLM.from_pretrained(place, dtype=getattr(torch, dtype), **options).eval()


def save_directory(checkpoint: Path, directory: Path) -> None:
    """Write a .gguf checkpoint, as transformers reads it, as a float32 Hugging Face directory."""
    from safetensors.torch import save_file

    model = load_model(checkpoint)
    directory.mkdir(parents=True, exist_ok=True)
    # A model that came from a GGUF refuses save_pretrained, though its weights are plain float32 by now.
    config = model.config.to_dict() | {"architectures": [type(model).__name__], "dtype": "float32"}
    config.pop("quantization_config", None)
    # transformers 5 writes the base of the rotary embedding inside rope_parameters; mlx-lm reads rope_theta alone.
    config["rope_theta"] = model.config.rope_parameters["rope_theta"]
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    weights = {name: value.contiguous() for name, value in model.state_dict().items() if name not in tied}
    load_tokenizer(checkpoint).save_pretrained(directory)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def cache_folder() -> Path:
    """Where what was converted once is kept: below XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paritygate" / "converted"


def as_directory(checkpoint: Path, kept: Path | None = None) -> Path:
    """A directory of the checkpoint; a .gguf file is converted once and kept under its hash and reader's version."""
    if checkpoint.is_dir():
        return checkpoint
    import transformers

    folder = kept or cache_folder()
    directory = folder / f"{weights_hash(checkpoint)[:16]}-transformers-{transformers.__version__}"
    if (directory / "model.safetensors").is_file():
        return directory
    folder.mkdir(parents=True, exist_ok=True)
    # Renamed when it is whole: another run that looks meanwhile sees nothing, or all of it.
    with scratch("converting", under=folder) as place:
        unfinished = place / "checkpoint"
        save_directory(checkpoint, unfinished)
        try:
            unfinished.rename(directory)
        except OSError:
            if not (directory / "model.safetensors").is_file():
                shutil.rmtree(directory, ignore_errors=True)
                unfinished.rename(directory)
    return directory


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Installed versions, by package; what is not installed is left out."""
    import importlib.metadata

    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
