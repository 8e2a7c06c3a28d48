"""Who runs next: admission by turns, lanes and bytes, one prefill piece per tick between decode steps."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenline.budget import ByteBudget
from tokenline.decode.finish import FinishCause, tokens_left
from tokenline.engine import Engine
from tokenline.errors import BackendError
from tokenline.row import Row, error_line
from tokenline.tally import Tally
from tokenline.waiting import WaitingRows

# Where nobody says otherwise: rows that may wait, and rows whose prompts are read by turns (docs/decisions).
MAX_QUEUE, PROMPT_CONCURRENCY = 256, 4

_log = logging.getLogger("tokenline")


@dataclass(frozen=True)
class Limits:
    """How many rows there may be: alive, waiting, and in prefill at once. BackendError where one is below 1."""

    parallel: int
    max_queue: int = MAX_QUEUE
    prompt_concurrency: int = PROMPT_CONCURRENCY

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise BackendError(f"{name} {value} lets nothing run", "use 1 or more")


class Scheduler:
    """As many rows as may are alive at once, in one lane and within the budget; the others wait for their turn.

    Only the row whose turn is next is ever admitted. One that does not fit beside what runs (another lane, too many
    bytes) holds up those behind it until it does: nothing that waits can be starved by what comes later.
    """

    def __init__(self, engine: Engine, budget: ByteBudget, limits: Limits) -> None:
        self._engine, self._budget, self._limits = engine, budget, limits
        self._waiting = WaitingRows(limits.max_queue)
        self.tally = Tally()
        self._prefilling: deque[Row] = deque()

    @property
    def queued(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._engine.rows)

    @property
    def most_rows(self) -> int:
        return self._limits.parallel + self._limits.max_queue

    @property
    def idle(self) -> bool:
        return not self._waiting and not self.running

    def submit(self, row: Row) -> None:
        """From any thread. QueueFull where as many rows wait as may."""
        ahead = (self.queued + 1) / self._limits.parallel
        self._waiting.add(row, self._free, max(1, math.ceil(self.tally.mean_run_s * ahead)))

    def _free(self) -> int:
        """Rows that the next tick can admit: they do not wait."""
        return max(0, self._limits.parallel - self.running)

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
            "parallel": self._limits.parallel,
            "max_queue": self._limits.max_queue,
            "kv_bytes": self._engine.live_bytes,
            "kv_budget_bytes": self._budget.limit_bytes,
            **self.tally.counts(),
        }

    def tick(self) -> None:
        """One turn: cancelled rows leave, waiting ones are admitted, one piece is prefilled, every row steps once."""
        self._drop_cancelled()
        while (row := self._waiting.first()) is not None and self._fits(row):
            self._waiting.discard([row])
            self._admit(row)
        if self._prefilling:
            self._prefill(self._prefilling.popleft())
        if self._engine.rows:
            try:
                self._engine.step()
            except Exception as error:
                # Where the cause could not be told from the rows around it, a batch is one computation: what breaks it
                # breaks every row in it, and none outside it.
                _log.exception("a decode step failed")
                self._fail(self._engine.rows, error)

    def _fits(self, row: Row) -> bool:
        """Whether the row may run beside those that do."""
        alive = [*self._prefilling, *self._engine.rows]
        if not alive:
            return True
        if len(alive) >= self._limits.parallel or len(self._prefilling) >= self._limits.prompt_concurrency:
            return False
        return all(other.lane == row.lane for other in alive) and self._budget.fits([*alive, row])

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
            self._fail([row], error)
            return
        if not done:
            self._prefilling.append(row)  # the others have their turn
            return
        row.clock.prefilled = time.monotonic_ns()
        if tokens_left(row.generated, row.max_tokens) == 0:
            self._engine.finish_rows([row], FinishCause.LENGTH)

    def _fail(self, rows: Sequence[Row], error: Exception) -> None:
        self._engine.finish_rows(rows, FinishCause.ERROR, error_line(error))

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
