"""What a process that may still run has printed into a file."""

from __future__ import annotations

import os
from typing import IO

MOST = 2000  # bytes that an error keeps


def end_of(file: IO[bytes], most: int = MOST) -> str:
    """The last that was written; read in place, as the process that writes shares the file's position."""
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, most, max(0, size - most)).decode(errors="replace")
