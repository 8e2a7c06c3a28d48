"""The one thread that touches the backend: it loads, ticks, and ends; others hand it work."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs calls in order of arrival and, between them, `tick` while it says that there is more to do.

    Array libraries tie streams and thread counts to a thread, so everything that computes runs on this one.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._tick: Callable[[], bool] = lambda: False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ticks(self, tick: Callable[[], bool]) -> None:
        """Set what runs between calls; it returns whether it wants to run again."""
        self.call(lambda: setattr(self, "_tick", tick)).result()

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run it on the thread; the future holds what it returned or raised."""
        future: Future[T] = Future()
        if self._closed.is_set():
            future.set_exception(RuntimeError("the model is closed"))
            return future

        def run() -> None:
            try:
                future.set_result(function())
            except (
                BaseException
            ) as error:  # the caller's, whatever it is: it is raised where the future is read
                future.set_exception(error)

        self._calls.put(run)
        return future

    def close(self, last: Callable[[], Any]) -> None:
        """Run `last`, then end the thread; later calls are refused."""
        if self._closed.is_set():
            return
        ended = self.call(lambda: self._ended(last))
        self._closed.set()
        self._calls.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
            ended.result()

    def _ended(self, last: Callable[[], Any]) -> None:
        # What a tick works on may be gone after the last call, and the thread may turn once more before it is told.
        self._tick = lambda: False
        last()

    def _run(self) -> None:
        busy = False
        while True:
            while not busy or not self._calls.empty():
                call = self._calls.get()
                if call is None:
                    return
                call()
                busy = True  # a call may have brought work
            busy = self._tick()
