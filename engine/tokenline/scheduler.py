"""Who runs next: admission in order of arrival, one prefill piece per tick between decode steps."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence

from tokenline.decode.finish import FinishCause, tokens_left
from tokenline.engine import Engine
from tokenline.row import Row

_log = logging.getLogger("tokenline")


class Scheduler:
    """`parallel` rows at most are alive at once; the others wait, first come first served."""

    def __init__(self, engine: Engine, parallel: int) -> None:
        self._engine = engine
        self._parallel = parallel
        self._queue: deque[Row] = deque()
        self._prefilling: deque[Row] = deque()

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._engine.rows)

    @property
    def idle(self) -> bool:
        return not self._queue and not self.running

    def submit(self, row: Row) -> None:
        self._queue.append(row)

    def tick(self) -> None:
        """One turn: cancelled rows leave, waiting ones are admitted, one piece is prefilled, every row steps once."""
        self._drop_cancelled()
        while self._queue and self.running < self._parallel:
            self._admit(self._queue.popleft())
        if self._prefilling:
            self._prefill(self._prefilling[0])
        if self._engine.rows:
            try:
                self._engine.step()
            except Exception as error:
                # A batch is one computation: what breaks it breaks every row in it, and none outside it.
                _log.exception("a decode step failed")
                self._fail(self._engine.rows, error)

    def _admit(self, row: Row) -> None:
        row.clock.started = time.monotonic_ns()
        try:
            self._engine.open(row)
        except Exception as error:
            _log.exception("a row could not be opened")
            self._fail([row], error)
        else:
            self._prefilling.append(row)

    def _prefill(self, row: Row) -> None:
        try:
            done = self._engine.prefill(row)
        except Exception as error:
            _log.exception("a prefill failed")
            self._prefilling.popleft()
            self._fail([row], error)
            return
        if done:
            self._prefilling.popleft()
            row.clock.prefilled = time.monotonic_ns()
            if tokens_left(row.generated, row.max_tokens) == 0:
                self._engine.finish_rows([row], FinishCause.LENGTH)

    def _fail(self, rows: Sequence[Row], error: Exception) -> None:
        self._engine.finish_rows(rows, FinishCause.ERROR, f"{type(error).__name__}: {error}".splitlines()[0])

    def _drop_cancelled(self) -> None:
        cancelled = [row for row in (*self._queue, *self._prefilling, *self._engine.rows) if row.cancelled]
        if cancelled:
            self._queue = deque(row for row in self._queue if not row.cancelled)
            self._prefilling = deque(row for row in self._prefilling if not row.cancelled)
            self._engine.finish_rows(cancelled, FinishCause.CANCELLED)

    def close(self) -> None:
        """End every row, waiting ones too."""
        waiting, self._queue = list(self._queue), deque()
        self._prefilling.clear()
        self._engine.finish_rows(waiting, FinishCause.CANCELLED)
        self._engine.close()
