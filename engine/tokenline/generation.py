"""A request under way: its events as they come, its result at the end."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tokenline.row import Event, Row

_log = logging.getLogger("tokenline")


def _nobody(event: Event) -> None:
    """Stands for a consumer that failed."""


class Generation:
    """Handed out by `Model.submit`; any thread may iterate it, wait for its result or cancel it.

    Iterating takes the events away: one consumer iterates, or subscribes.
    """

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._callback: Callable[[Event], None] | None = None
        self._done = threading.Event()
        self._result: dict[str, Any] | None = None
        self._row: Row | None = None

    def attach(self, row: Row) -> None:
        self._row = row

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return 0 if self._row is None else len(self._row.prompt)

    def emit(self, event: Event) -> None:
        """Called by the engine's thread."""
        with self._lock:
            if event.result is not None:
                self._result = event.result
            if self._callback is None:
                self._events.put(event)
            else:
                self._tell(self._callback, event)
        if event.result is not None:
            self._done.set()

    def _tell(self, callback: Callable[[Event], None], event: Event) -> None:
        """A consumer that throws ends its own row, and no other: the engine's thread goes on."""
        try:
            callback(event)
        except Exception:  # the boundary that owns the row
            _log.exception("a row's consumer failed: the row is cancelled")
            self._callback = _nobody
            self.cancel()

    def subscribe(self, callback: Callable[[Event], None]) -> None:
        """Have the callback called for every event on the engine's thread; events already there come at once."""
        with self._lock:
            while not self._events.empty():
                callback(self._events.get_nowait())
            self._callback = callback

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self._events.get()
            yield event
            if event.result is not None:
                return

    def result(self) -> dict[str, Any]:
        """Wait for the end."""
        self._done.wait()
        if self._result is None:
            raise RuntimeError("a generation ended without a result")
        return self._result

    def cancel(self) -> None:
        """End the row before its next step; its result says what it had said until then."""
        if self._row is not None:
            self._row.cancelled = True
