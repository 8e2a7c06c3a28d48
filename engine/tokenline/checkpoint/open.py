"""From what a user typed to an open checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from tokenline.checkpoint import gguf, hugging_face
from tokenline.checkpoint.alias import resolve
from tokenline.checkpoint.checkpoint import Checkpoint
from tokenline.checkpoint.gguf_tokenizer import gguf_text_parts
from tokenline.checkpoint.hf_tokenizer import hf_text_parts
from tokenline.errors import CheckpointError


def open_checkpoint(model: str, families: Iterable[str]) -> Checkpoint:
    """MODEL is a Hugging Face directory, a .gguf file or an alias; CheckpointError where it cannot be opened."""
    path = Path(resolve(model))
    if path.is_dir():
        return _open_directory(path, families)
    return _open_gguf(path)


def _open_gguf(path: Path) -> Checkpoint:
    reader = gguf.read_gguf(path)
    meta = gguf.metadata(reader)
    family, config = gguf.family_and_config(path.name, meta, reader)
    return Checkpoint(
        name=path.stem,
        family=family,
        config=config,
        tensors=gguf.tensors(path.name, meta, reader, config),
        text=gguf_text_parts(meta),
        weights_hash=_hash([path]),
    )


def _open_directory(path: Path, families: Iterable[str]) -> Checkpoint:
    config = hugging_face.read_json(path / "config.json")
    family = config.get("model_type")
    supported = sorted(families)
    if family not in supported:
        raise CheckpointError(
            f"{path.name}/ holds the family {family!r}, which is not supported",
            f"supported: {', '.join(supported)}",
        )
    generation = path / "generation_config.json"
    return Checkpoint(
        name=path.resolve().name,
        family=family,
        config=config,
        tensors=hugging_face.tensors(path, config),
        text=hf_text_parts(path),
        weights_hash=_hash(hugging_face.weight_files(path)),
        generation_config=hugging_face.read_json(generation) if generation.exists() else None,
    )


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
