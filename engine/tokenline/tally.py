"""What a model has answered over its life, for those who watch it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from tokenline.result import prompt_tokens_read

_log = logging.getLogger("tokenline")


class Tally:
    """Counts finished rows, and hands each row's result once to every observer."""

    def __init__(self) -> None:
        self.finished: Counter[str] = Counter()  # requests by finish cause
        self._tokens = Counter(prompt_tokens=0, cached_tokens=0, generated_tokens=0)
        self._run_ns = 0  # from admission to end, over all finished rows
        self._observers: list[Callable[[dict[str, Any]], None]] = []

    def observe(self, observer: Callable[[dict[str, Any]], None]) -> None:
        self._observers.append(observer)

    @property
    def mean_run_s(self) -> float:
        """How long a row runs once it is admitted; 0 before the first has ended."""
        return self._run_ns / max(1, self.finished.total()) / 1e9

    def note(self, result: dict[str, Any]) -> None:
        """Called by the engine's thread with the result of a row that ended."""
        usage, timings = result["usage"], result["timings"]
        self.finished[result["finish_cause"]] += 1
        self._tokens.update(
            prompt_tokens=prompt_tokens_read(result),
            cached_tokens=usage["cached_tokens"],
            generated_tokens=usage["completion_tokens"],
        )
        self._run_ns += timings["total_ns"] - timings["queue_ns"]
        for observer in self._observers:
            try:
                observer(result)
            except Exception:  # the boundary that owns the row: it has ended, whoever watches it
                _log.exception("an observer of results failed")

    def counts(self) -> dict[str, Any]:
        return {"finished": dict(self.finished), **self._tokens}
