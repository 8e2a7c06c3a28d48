"""sha256 of files; one that the file system says was not written to is read once in a process."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=4096)
def _read(path: Path, size: int, written: int, changed: int, inode: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digest(path: Path) -> str:
    """Hex digest of a file. Raises OSError."""
    told = path.stat()
    return _read(path, told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino)
