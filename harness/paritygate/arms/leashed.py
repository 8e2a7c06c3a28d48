"""Starts and ends a command on a leash: whoever is killed, nothing of the command is left."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from paritygate.arms.leash import AT_ONCE, STOPPING_SECONDS, words


def start(
    command: list[str],
    *,
    stdout: IO[bytes],
    stderr: IO[bytes] | int,
    descriptors: tuple[int, ...] = (),
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """A leash with the command on it. `descriptors` stay open in the command, under their numbers."""
    return subprocess.Popen(
        words(command),
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        pass_fds=descriptors,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the command of a leash and all that it started; the leash has swept up after itself if it ended already."""
    assert process.stdin is not None
    # It ends at this very moment, or another thread ends it.
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(AT_ONCE)
        process.stdin.flush()
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(2 * STOPPING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
