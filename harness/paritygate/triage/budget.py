"""What triage may spend: a number of checks in a run, and seconds and arm calls in a check."""

from __future__ import annotations

import threading
import time


class Allowance:
    """How many more divergences of this run are looked into with the arms; lanes share it."""

    def __init__(self, checks: int) -> None:
        self.checks = checks
        self._left = checks
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether one more may be looked into."""
        with self._lock:
            granted = self._left > 0
            self._left -= granted
            return granted


class Spent(Exception):
    """The budget of a check is used up; the message says which."""


class Budget:
    """Seconds and arm calls of one check."""

    def __init__(self, seconds: float, calls: int) -> None:
        self.seconds, self.calls = seconds, calls
        self.called = 0
        self._started = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def check(self) -> None:
        """Raise Spent where no time is left."""
        if self.elapsed > self.seconds:
            raise Spent(f"the {self.seconds:g} s of a triage were used up")

    def call(self) -> None:
        """One more call of an arm. Raises Spent where there is none left."""
        self.check()
        if self.called >= self.calls:
            raise Spent(f"the {self.calls} arm calls of a triage were used up")
        self.called += 1
