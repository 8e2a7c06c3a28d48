"""A file by its row of the table: the configuration, and the matrices as a directory holds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gguf import GGUFReader

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.checkpoint.gguf.architecture import Joined, Matrix
from tokenline.checkpoint.gguf.architectures import architecture_of
from tokenline.checkpoint.gguf.blocks import Stacked, read_tensor
from tokenline.checkpoint.gguf.rope import FACTORS
from tokenline.checkpoint.gguf.said import Said
from tokenline.errors import CheckpointError
from tokenline.ops.arrays import HostArray

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_ENDINGS = (".weight", ".bias")

Read = Callable[[], HostArray]


def _said(name: str, meta: Mapping[str, Any], reader: GGUFReader) -> Said:
    return Said(
        name, str(meta.get("general.architecture")), meta, {each.name: each for each in reader.tensors}
    )


def family_and_config(name: str, meta: Mapping[str, Any], reader: GGUFReader) -> tuple[str, dict[str, Any]]:
    """The family, and the metadata as a config.json would spell them."""
    parts = meta.get("split.count", 1)
    if parts != 1:
        raise CheckpointError(f"{name} is one of {parts} parts", "join them first: llama-gguf-split --merge")
    said = _said(name, meta, reader)
    row = architecture_of(said)
    config = {key: reads(said) if callable(reads) else reads for key, reads in row.keys.items()}
    return row.family, {"model_type": row.family, **config}


def tensors(name: str, meta: Mapping[str, Any], reader: GGUFReader, config: Mapping[str, Any]) -> Tensors:
    """The matrices under Hugging Face names, in Hugging Face orders and values; CheckpointError for a tensor that the
    architecture does not have."""
    said = _said(name, meta, reader)
    row = architecture_of(said)
    named: dict[str, Read] = {}
    parts: dict[tuple[str, Joined], dict[int, Any]] = {}  # by the name of what they become
    for told, tensor in said.tensors.items():
        if told in FACTORS:
            continue
        match = _LAYER.fullmatch(told)
        if match and int(match[1]) >= said.layers:
            continue
        begins, rest = (f"{row.layer}{match[1]}.", match[2]) if match else ("", told)
        joined = next((each for each in row.joined if match and rest in each.parts), None)
        if joined is not None:
            parts.setdefault((begins + joined.name, joined), {})[joined.parts.index(rest)] = tensor
            continue
        matrix = _matrix(row.layers if match else row.outside, rest)
        if matrix is None:
            raise CheckpointError(
                f"the tensor {told} belongs to no {said.architecture}", "it is another architecture's file"
            )
        for made, read in _reads(matrix, tensor, config):
            named[begins + made] = read
    for (made, joined), held in parts.items():
        named[made] = _joined(joined, held, config, made)
    return Tensors(named, lambda name: named[name]())


def _matrix(table: Mapping[str, str | Matrix], name: str) -> Matrix | None:
    """The row of a tensor, by its whole name or by what it is a weight or bias of."""
    found = table.get(name)
    if found is not None:
        return found if isinstance(found, Matrix) else Matrix(found)
    for ending in _ENDINGS:
        found = table.get(name.removesuffix(ending)) if name.endswith(ending) else None
        if isinstance(found, Matrix):
            return Matrix(found.name + ending, found.undo)
        if found is not None:
            return Matrix(found + ending)
    return None


def _reads(matrix: Matrix, tensor: Any, config: Mapping[str, Any]) -> list[tuple[str, Read]]:
    undo = matrix.undo

    def reads(held: Any) -> Read:
        if undo is None:
            return lambda: read_tensor(held)
        return lambda: _undone([held], lambda arrays: undo(arrays[0], config))

    if "{expert}" not in matrix.name:
        return [(matrix.name, reads(tensor))]
    stacked = range(int(tensor.shape[-1]))
    return [(matrix.name.format(expert=index), reads(Stacked.of(tensor, index))) for index in stacked]


def _joined(joined: Joined, parts: Mapping[int, Any], config: Mapping[str, Any], name: str) -> Read:
    lacks = [part for index, part in enumerate(joined.parts) if index not in parts]
    if lacks:
        raise CheckpointError(
            f"{name} lacks its parts {', '.join(lacks)}", "the file is incomplete; fetch it again"
        )
    held = [parts[index] for index in range(len(parts))]
    return lambda: _undone(held, lambda arrays: joined.join(arrays, config))


def _undone(held: Sequence[Any], undo: Callable[[list[HostArray]], HostArray]) -> HostArray:
    """CheckpointError where the shapes are not what the metadata says."""
    arrays = [read_tensor(each) for each in held]
    try:
        return undo(arrays)
    except ValueError as error:
        shapes = ", ".join(
            f"{each.name} {tuple(array.shape)}" for each, array in zip(held, arrays, strict=True)
        )
        raise CheckpointError(
            f"the metadata does not fit the shape of {shapes}", "they belong to different models"
        ) from error
