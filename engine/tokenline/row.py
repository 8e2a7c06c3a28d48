"""One sequence in a batch: what it was asked, what it has said, and what it counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tokenline.cache import LayerCache
from tokenline.decode.finish import FinishCause, FinishInput, finish_step, tokens_left
from tokenline.decode.prefill_plan import Piece, PrefillPlan
from tokenline.decode.sampling import RowParameters
from tokenline.request import Request
from tokenline.text.text_stream import TextStream
from tokenline.text.tokenizer import Tokenizer


class Event(msgspec.Struct, frozen=True):
    """One token of a row as it is decided, or the row's end.

    `text` may be empty while characters or a possible stop string are held back. Exactly one event, the last, has a
    `result`; its `token_id` is None and its text the tail that was held back.
    """

    index: int | None = None
    token_id: int | None = None
    text: str = ""
    logprobs: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


@dataclass
class RowCounters:
    """Work done for this row; a forward or a read that serves several rows counts once for each."""

    prefill_pieces: list[tuple[int, int]] = field(default_factory=list)
    cached_tokens: int = 0
    prefill_forwards: int = 0
    decode_forwards: int = 0
    host_reads: int = 0
    head_positions: int = 0
    max_rows: int = 1
    bytes_copied: int = 0


@dataclass
class RowClock:
    """Nanoseconds of the monotonic clock."""

    submitted: int = field(default_factory=time.monotonic_ns)
    started: int = 0
    prefilled: int = 0
    tokens: list[int] = field(default_factory=list)
    finished: int = 0


class Row:
    """State of one request between its admission and its end."""

    def __init__(
        self,
        *,
        request: Request,
        prompt: list[int],
        plan: PrefillPlan,
        parameters: RowParameters,
        tokenizer: Tokenizer,
        max_tokens: int,
        context_length: int,
        free_unused: Callable[[], None],
        emit: Callable[[Event], None],
        finished: Callable[[Row], dict[str, Any]],
    ) -> None:
        self.request = request
        self.prompt = prompt
        self.plan = plan
        self.parameters = parameters
        self.max_tokens = max_tokens
        self.context_length = context_length
        self.generated: list[int] = []
        self.history = list(prompt)
        self.text = ""
        self.logprobs: list[dict[str, Any]] = []
        self.cause: FinishCause | None = None
        self.error: str | None = None
        self.cancelled = False
        self.caches: list[LayerCache] = []  # while it prefills; the batch's afterwards
        self.pieces: list[Piece] = []
        self.counters = RowCounters()
        self.clock = RowClock()
        self._tokenizer = tokenizer
        self._eos = frozenset() if request.ignore_eos else tokenizer.eos_token_ids
        self._stream = TextStream(tokenizer, request.stop)
        self._piece_of_text = ""
        self._free_unused = free_unused
        self._emit = emit
        self._finished = finished

    @property
    def position(self) -> int:
        """The index that the next token will have in the row's text."""
        return len(self.generated)

    @property
    def last_token_pending(self) -> bool:
        """Whether the token that is drawn and not yet read must end the row, so that no forward follows it."""
        left = tokens_left(self.generated, self.max_tokens)
        return left <= 1 or len(self.history) + 1 >= self.context_length

    def take(self, token: int, entry: dict[str, Any] | None) -> FinishCause | None:
        """Judge the token that was just read, and tell the consumer."""
        self._piece_of_text = ""
        before = len(self.generated)
        step = FinishInput(
            token, self._eos, self.generated, self.history, self.max_tokens, self.request.loop_detection
        )
        cause = finish_step(step, self)
        if len(self.generated) > before:
            self.clock.tokens.append(time.monotonic_ns())
            if entry is not None:
                self.logprobs.append(entry)
            self.text += self._piece_of_text
            self._emit(Event(before, token, self._piece_of_text, entry))
        return cause

    def finish(self, cause: FinishCause, error: str | None = None) -> None:
        """End the row, flush its text once and send its result; a later call changes nothing."""
        if self.cause is not None:
            return
        self.cause, self.error = cause, error
        tail = self._stream.finish()
        self.text += tail
        self.clock.finished = time.monotonic_ns()
        self._emit(Event(text=tail, result=self._finished(self)))

    def logprob_entry(
        self, token: int, logprobs: np.ndarray, alternatives: np.ndarray
    ) -> dict[str, Any] | None:
        """The wire's entry for one token: logprobs float32 [1 + n] with the drawn token's first, alternatives [n]."""
        count = self.parameters.top_logprobs
        if count is None:
            return None

        def entry(token_id: int, logprob: float) -> dict[str, Any]:
            raw = self._tokenizer.token_bytes(token_id)
            return {
                "token_id": token_id,
                "token": self._tokenizer.token_text(token_id),
                "bytes": list(raw),
                "logprob": logprob,
            }

        top = [entry(int(t), float(p)) for t, p in zip(alternatives[:count], logprobs[1:], strict=False)]
        return {**entry(token, float(logprobs[0])), "top_logprobs": top}

    # what finish_step asks of a row
    def stop_text(self, token: int) -> bool:
        self._piece_of_text, stopped = self._stream.push(token)
        return stopped

    def bound_stopped(self) -> bool:
        return False

    def structured_stopped(self) -> bool:
        return False

    def context_bound_due(self) -> bool:
        return len(self.history) >= self.context_length

    def clear_cache(self) -> None:
        self._free_unused()
