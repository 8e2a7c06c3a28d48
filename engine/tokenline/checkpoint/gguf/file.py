"""A GGUF file, opened: whole, and with what its header says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gguf import GGUFReader

from tokenline.errors import CheckpointError


def read_gguf(path: Path) -> GGUFReader:
    """The opened file; CheckpointError for one that is no GGUF or ends before its tensors do."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise CheckpointError(f"{path.name} is not a GGUF file", "give a .gguf file or a model directory")
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError, MemoryError) as error:
        size = path.stat().st_size
        raise CheckpointError(
            f"{path.name} is truncated or corrupt: its {size} bytes do not hold what its header says",
            "fetch it again",
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"{path.name} cannot be read ({error.strerror})", "check the path and its rights"
        ) from error
    size = path.stat().st_size
    end = max((int(t.data_offset) + int(t.n_bytes) for t in reader.tensors), default=0)
    if not reader.tensors or end > size:
        raise CheckpointError(
            f"{path.name} ends at byte {size}, its tensors at {end}", "it is truncated; fetch it again"
        )
    return reader


def metadata(reader: GGUFReader) -> dict[str, Any]:
    return {key: field.contents() for key, field in reader.fields.items()}
