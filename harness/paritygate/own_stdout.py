"""For a process whose stdout is read by a program: libraries print, and must not be in it."""

from __future__ import annotations

import io
import os
import sys
from typing import BinaryIO


def own_stdout() -> BinaryIO:
    """The real stdout; whatever else is printed from now on goes to stderr.

    Line by line, so that the last line there is why the process failed and not what a library said before.
    """
    kept = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return kept
