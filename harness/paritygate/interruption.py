"""What Ctrl-C, or being told to end, does to a command that has found something already."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType, TracebackType

from paritygate.verdict import Exit

# Keys pressed in quick succession are one wish; later the first may have been lost where nobody could hear it.
AGAIN_SECONDS = 2.0
NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While inside, the first signal raises KeyboardInterrupt and begins the orderly end.

    The second ends the process at once with exit 4, but not before `keep` has saved what was found: whatever else was
    started ends by itself once this process is gone. After `heed_no_more`, when all is found, none raises.
    """

    def __init__(self, leaving: Callable[[], None] = lambda: None) -> None:
        self._leaving = leaving
        self._asked_at: float | None = None
        self._done = self._kept = self._hurried = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interruption:
        for number in NUMBERS:
            self._before[number] = signal.signal(number, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def heed_no_more(self) -> None:
        """No signal raises from here on."""
        self._done = True

    def keep(self, save: Callable[[], None]) -> None:
        """Save what was found; whoever asked twice waits for this and for nothing else."""
        self._done = True
        save()
        self._kept = True
        if self._hurried:
            self._leave()

    def _asked(self, number: int, frame: FrameType | None) -> None:
        first, self._asked_at = self._asked_at, time.monotonic()
        if self._done or (first is not None and self._asked_at - first < AGAIN_SECONDS):
            self._hurried = self._hurried or first is not None
            if self._kept and self._hurried:
                self._leave()
            return
        raise KeyboardInterrupt

    def _leave(self) -> None:
        self._leaving()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(Exit.INCONCLUSIVE)
