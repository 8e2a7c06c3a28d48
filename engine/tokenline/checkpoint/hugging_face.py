"""Hugging Face directories: config.json and safetensors, in one file or sharded."""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.checkpoint.fp8 import E4M3, fp8_blocks
from tokenline.checkpoint.mlx_quantized import mlx_quantized
from tokenline.errors import CheckpointError

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F64": np.float64, "F8_E4M3": np.uint8}
_CODES = {"U8": np.uint8, "U32": np.uint32}  # packed weights, which only their reader can make numbers of
_MAX_HEADER = 100_000_000  # the format's own limit


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; CheckpointError for a missing or broken file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.parent.name}/ has no {path.name}", "give a complete model directory"
        ) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path.name} cannot be read ({error})", "fetch it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path.name} does not hold an object", "fetch it again")
    return value


class SafetensorsFile:
    """One file, mapped; its header is checked against its size before anything is read.

    The format (safetensors documentation): 8 bytes of little-endian header length, a JSON header of
    name -> dtype, shape, data_offsets, then the data. Read here and not by the library because the library gives
    bfloat16 to torch alone, and an MLX machine has no torch.
    """

    def __init__(self, path: Path) -> None:
        def broken(why: str) -> CheckpointError:
            return CheckpointError(f"{path.name} is truncated or corrupt: {why}", "fetch it again")

        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                if size < 8:
                    raise broken(f"{size} bytes")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise CheckpointError(f"{path.parent.name}/ has no {path.name}", "fetch it again") from error
        (length,) = struct.unpack("<Q", self._map[:8])
        if length > min(size - 8, _MAX_HEADER):
            raise broken(f"its header is {length} bytes long")
        try:
            header = json.loads(self._map[8 : 8 + length])
            header.pop("__metadata__", None)
            self._entries = {
                name: (entry["dtype"], tuple(entry["shape"]), *entry["data_offsets"])
                for name, entry in header.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise broken("its header cannot be parsed") from error
        self._start = 8 + length
        end = max((stop for *_, stop in self._entries.values()), default=0)
        if self._start + end > size:
            raise broken(f"it ends at byte {size}, its tensors at {self._start + end}")
        self._path = path

    def names(self) -> list[str]:
        return list(self._entries)

    def read(self, name: str) -> np.ndarray:
        """Of the stored shape: numbers as float32, codes as they are."""
        dtype, shape, start, stop = self._entries[name]
        stored = (_DTYPES | _CODES).get(dtype)
        if stored is None:
            raise CheckpointError(
                f"{name} in {self._path.name} is stored as {dtype}",
                f"supported: {', '.join(_DTYPES | _CODES)}",
            )
        count = int(np.prod(shape))
        if count * np.dtype(stored).itemsize != stop - start:
            raise CheckpointError(f"{name} in {self._path.name} does not fill its bytes", "fetch it again")
        values = np.frombuffer(self._map, stored, count=count, offset=self._start + start)
        if dtype == "BF16":
            return (values.astype(np.uint32) << 16).view(np.float32).reshape(shape)
        if dtype == "F8_E4M3":
            return E4M3[values].reshape(shape)
        if dtype in _CODES:
            return values.reshape(shape)
        return values.astype(np.float32).reshape(shape)


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files that hold the model, in a fixed order."""
    if (directory / _INDEX).exists():
        shards = read_json(directory / _INDEX).get("weight_map", {})
        return [directory / name for name in sorted(set(shards.values()))]
    if not (directory / _SINGLE).exists():
        raise CheckpointError(
            f"{directory.name}/ has neither {_SINGLE} nor {_INDEX}",
            "give a directory with safetensors weights",
        )
    return [directory / _SINGLE]


def tensors(directory: Path, config: Mapping[str, Any]) -> Tensors:
    """The matrices of every shard; buffers that a config determines (rotary inverse frequencies) are left out."""
    where: dict[str, SafetensorsFile] = {}
    for path in weight_files(directory):
        file = SafetensorsFile(path)
        where.update({name: file for name in file.names() if not name.endswith("rotary_emb.inv_freq")})

    def read(name: str) -> np.ndarray:
        return where[name].read(name)

    if (by_mlx := config.get("quantization")) is not None:
        return mlx_quantized(set(where), read, by_mlx)
    published = config.get("quantization_config") or {}
    if published.get("quant_method") == "fp8":
        return fp8_blocks(set(where), read, published)
    return Tensors(where, read)
