"""The rows that wait: in which order they run, and how many there may be."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Sequence

from tokenline.errors import QueueFull
from tokenline.row import Row

# What one step of priority is worth. A row of priority p runs as if it had come p times as many seconds earlier:
# higher first among rows that came about together, and none can be overtaken by what comes long after it.
HEAD_START_S = 10


def turn(row: Row) -> int:
    """When a row is to run, in nanoseconds of the clock that rows are submitted by: the lowest first."""
    return row.clock.submitted - row.request.priority * HEAD_START_S * 1_000_000_000


class WaitingRows:
    """First come first served, but for priority. Any thread may add; one thread takes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row, free: Callable[[], int], retry_after_s: int) -> None:
        """QueueFull where `limit` rows wait beside as many as are `free` to run; RuntimeError after the end."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the model is closed")
            if len(self._rows) >= self.limit + free():
                raise QueueFull(
                    f"{self.limit} requests are waiting",
                    f"try again in {retry_after_s} s",
                    retry_after_s=retry_after_s,
                )
            bisect.insort(self._rows, row, key=turn)

    def rows(self) -> Sequence[Row]:
        """In the order of their turns."""
        with self._lock:
            return tuple(self._rows)

    def first(self) -> Row | None:
        with self._lock:
            return self._rows[0] if self._rows else None

    def discard(self, rows: Sequence[Row]) -> None:
        with self._lock:
            self._rows = [row for row in self._rows if row not in rows]

    def close(self) -> Sequence[Row]:
        """Let nothing in any more; returns who waited."""
        with self._lock:
            self._closed = True
            waited, self._rows = tuple(self._rows), []
        return waited
