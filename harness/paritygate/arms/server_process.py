"""A server that an arm starts on a free port, waits for, and stops."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

import httpx

from paritygate.arms import leashed
from paritygate.arms.base import ArmError
from paritygate.arms.printed import end_of

POLL_SECONDS = 0.05
STOPPING_SECONDS = 5.0


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """`words` may hold {port}. The server is ready when GET `ready` answers 200."""

    def __init__(self, words: list[str], *, ready: str, timeout_s: float, cwd: Path | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by stop)
        words = [word.replace("{port}", str(self.port)) for word in words]
        self._process = leashed.start(words, stdout=self._printed, stderr=subprocess.STDOUT, cwd=cwd)
        try:
            self._wait(ready, timeout_s)
        except BaseException:
            self.stop()
            raise

    def said(self) -> str:
        """The end of what the server printed."""
        return end_of(self._printed)

    def _wait(self, ready: str, timeout_s: float, cwd: Path | None = None) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if (status := self._process.poll()) is not None:
                raise ArmError(f"the server ended with exit status {status} before it was ready", self.said())
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(self.url + ready, timeout=5.0).status_code == 200:
                    return
            time.sleep(POLL_SECONDS)
        raise ArmError(f"the server hung: {ready} did not answer within {timeout_s:g} s", self.said())

    def stop(self) -> None:
        """Ask, then kill; nothing of it is left."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=STOPPING_SECONDS)
        leashed.end(self._process)
        self._printed.close()
