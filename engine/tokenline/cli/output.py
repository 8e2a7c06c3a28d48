"""Where a command writes: generated text to stdout, byte for byte; everything else, a line each, to stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


class Interrupted(Exception):
    """Ctrl-C, after what there was to keep has been written."""


class PipeClosed(Exception):
    """Whoever read our stdout has gone, as `head` does."""


def say(line: str) -> None:
    print(f"tokenline: {line}", file=sys.stderr, flush=True)


def write(text: str) -> None:
    """Send text now, as UTF-8 whatever the locale, with its line ends as they are."""
    if sys.stdout is None:  # started with its stdout closed
        raise PipeClosed
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # What is still buffered must not fail once more when Python flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PipeClosed from None


def write_json(value: Any) -> None:
    """One object on one line; a number that JSON cannot say (a logprob of -inf) becomes null."""
    try:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        line = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    write(line + "\n")


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if value - value == 0 else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value
