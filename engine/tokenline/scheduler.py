"""Who runs next: admission in order of arrival, one prefill piece per tick between decode steps."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from tokenline.decode.finish import FinishCause, tokens_left
from tokenline.engine import Engine
from tokenline.row import Row
from tokenline.tally import Tally
from tokenline.waiting import WaitingRows

# Rows that may wait where nobody says otherwise.
MAX_QUEUE = 256

_log = logging.getLogger("tokenline")


class Scheduler:
    """`parallel` rows at most are alive at once; the others wait, first come first served but for their priority."""

    def __init__(self, engine: Engine, parallel: int, *, max_queue: int = MAX_QUEUE) -> None:
        self._engine = engine
        self._parallel = parallel
        self._waiting = WaitingRows(max_queue)
        self.tally = Tally()
        self._prefilling: deque[Row] = deque()

    @property
    def queued(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._engine.rows)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self.running

    def submit(self, row: Row) -> None:
        """From any thread. QueueFull where as many rows wait as may."""
        ahead = (self.queued + 1) / self._parallel
        self._waiting.add(row, max(1, math.ceil(self.tally.mean_run_s * ahead)))

    def slots(self) -> list[dict[str, Any]]:
        """One entry for each row that is alive, those that wait last."""
        by_state = {
            "decoding": self._engine.rows,
            "prefilling": self._prefilling,
            "queued": self._waiting.rows(),
        }
        return [_slot(row, state) for state, rows in by_state.items() for row in rows]

    def stats(self) -> dict[str, Any]:
        return {
            "running": self.running,
            "queued": self.queued,
            "prefilling": len(self._prefilling),
            "parallel": self._parallel,
            "max_queue": self._waiting.limit,
            "kv_bytes": self._engine.live_bytes,
            "kv_budget_bytes": None,
            **self.tally.counts(),
        }

    def tick(self) -> None:
        """One turn: cancelled rows leave, waiting ones are admitted, one piece is prefilled, every row steps once."""
        self._drop_cancelled()
        while self.running < self._parallel and (row := self._waiting.first()) is not None:
            self._waiting.discard([row])
            self._admit(row)
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
        cancelled = [
            row for row in (*self._waiting.rows(), *self._prefilling, *self._engine.rows) if row.cancelled
        ]
        if cancelled:
            self._forget(cancelled)
            self._engine.finish_rows(cancelled, FinishCause.CANCELLED)

    def _forget(self, rows: Sequence[Row]) -> None:
        self._waiting.discard(rows)
        self._prefilling = deque(row for row in self._prefilling if row not in rows)

    def close(self) -> None:
        """End every row, waiting ones too."""
        self._engine.finish_rows(self._waiting.close(), FinishCause.CANCELLED)
        self._prefilling.clear()
        self._engine.close()
        del self._engine


def _slot(row: Row, state: str) -> dict[str, Any]:
    pieces = row.counters.prefill_pieces
    cached = row.counters.cached_tokens
    return {
        "id": row.id,
        "state": state,
        "prompt_tokens": len(row.prompt),
        "cached_tokens": cached,
        "prefilled_tokens": pieces[-1][1] if pieces else cached,
        "generated_tokens": len(row.generated),
        "max_tokens": row.request.max_tokens,
        "priority": row.request.priority,
        "lane": row.lane,
        "seconds": (time.monotonic_ns() - row.clock.submitted) / 1e9,
    }
