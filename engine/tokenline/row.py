"""One sequence in a batch: what it was asked, what it has said, and what it counts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tokenline.cache import LayerCache
from tokenline.decode.drawable import drawable
from tokenline.decode.finish import FinishCause, FinishInput, finish_step, tokens_left
from tokenline.decode.prefill_plan import Piece, PrefillPlan
from tokenline.decode.sampling import RowParameters, mirostat
from tokenline.decode.structure import UNSTRUCTURED, Structure
from tokenline.prompt_cache import Trail
from tokenline.request import Request
from tokenline.text.indent import IndentBound
from tokenline.text.text_stream import TextStream
from tokenline.text.tokenizer import Tokenizer

_log = logging.getLogger("tokenline")


def error_line(error: BaseException) -> str:
    """An error as a row's result spells it: one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


class Event(msgspec.Struct, frozen=True):
    """One token of a row as it is decided, or the row's end.

    `text` may be empty while characters or a possible stop string are held back. Exactly one event, the last, has a
    `result`; its `token_id` is None and its text the tail that was held back. Where the prompt's logprobs are asked
    for, the first event carries them and nothing else. In a conversation `delta` is what the text adds to the message:
    `content`, `reasoning_content`, `tool_calls`, in the shape of OpenAI's delta.
    """

    index: int | None = None
    token_id: int | None = None
    text: str = ""
    logprobs: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    prompt_logprobs: list[dict[str, Any]] | None = None
    delta: dict[str, Any] | None = None


@dataclass(frozen=True)
class Taken:
    """One token that was read: its reported logprobs, and its surprise in bits where mirostat steers."""

    token: int
    entry: dict[str, Any] | None = None
    surprise: float | None = None


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
        structure: Structure = UNSTRUCTURED,
        id: int = 0,
    ) -> None:
        self.id = id
        self.request = request
        # Rows decode in one batch only where this is equal: a forward has one adapter's weights, "" the model's own.
        self.lane = request.adapter or ""
        self.prompt = prompt
        self.plan = plan
        self.parameters = parameters
        self.max_tokens = max_tokens
        self.context_length = context_length
        self.generated: list[int] = []
        self.history = list(prompt)
        self.text = ""
        self.logprobs: list[dict[str, Any]] = []
        self.prompt_logprobs: list[dict[str, Any]] | None = None
        self.mus: list[float] = []  # mirostat's bound after each token
        self.truncated_by: str | None = None
        self.cause: FinishCause | None = None
        self.error: str | None = None
        self.error_param: str | None = None  # the request's own field, where that is what cannot be met
        self.cancelled = False
        self.caches: list[LayerCache] = []  # while it prefills; the batch's afterwards
        self.pieces: list[Piece] = []
        self.trail = Trail()  # where the prompt cache keeps what its pieces leave
        self.counters = RowCounters()
        self.clock = RowClock()
        self._tokenizer = tokenizer
        self._eos = frozenset() if request.ignore_eos else tokenizer.eos_token_ids
        self._grammar = structure.grammar
        self.grammar_hash = structure.grammar_hash
        self._answer = structure.answer
        self._stream = TextStream(
            tokenizer, request.stop, exact=structure.grammar is not None, marks=structure.marks
        )
        self._indent = IndentBound(request.min_indent)
        if request.prompt_logprobs is not None:
            # Nothing comes before the first token that it could be likely after.
            self.prompt_logprobs = [{**self._spelled(prompt[0], None, first=True), "top_logprobs": []}]
        self._piece_of_text = ""
        self._free_unused = free_unused
        self._emit = emit
        self._finished = finished

    @property
    def position(self) -> int:
        """The index that the next token will have in the row's text."""
        return len(self.generated)

    @property
    def length_at_end(self) -> int:
        """Tokens of prompt and answer that its bounds allow."""
        return min(len(self.history) + tokens_left(self.generated, self.max_tokens), self.context_length)

    @property
    def last_token_pending(self) -> bool:
        """Whether the token that is drawn and not yet read must end the row, so that no forward follows it."""
        left = tokens_left(self.generated, self.max_tokens)
        return left <= 1 or len(self.history) + 1 >= self.context_length

    @property
    def mu(self) -> float | None:
        """Mirostat's bound for the next draw, None before the first token: a function of what was drawn so far."""
        return self.mus[-1] if self.mus else None

    @property
    def needs_history(self) -> bool:
        """Whether a draw must wait until the tokens before it are read."""
        return self._grammar is not None or self.parameters.needs_history

    @property
    def stop_found(self) -> str | None:
        """The stop string that ended the text, None where none did."""
        return self._stream.stop_found

    @property
    def message(self) -> dict[str, Any] | None:
        """The assistant's message in a conversation, taken apart; None for a row that continues a text."""
        return None if self._answer is None else self._answer.message

    def allowed(self) -> np.ndarray | None:
        """What the row's grammar allows next, bool [vocabulary]; None where it has none."""
        return None if self._grammar is None else self._grammar.allowed()

    @property
    def excluded(self) -> str | None:
        """The field of the request that leaves no token here, whatever the model says; None where one is left. Lists
        alone leave one, or the request would not have been taken."""
        if self._grammar is None:
            return None
        left = drawable(self.parameters.sampling, self.parameters.eos_token_ids, self._grammar.allowed())
        return None if left.any() else self.request.constraint or "tools"

    @property
    def undrawable(self) -> str:
        """Why no token could be drawn."""
        if self.excluded is not None:
            what = f"what {self.excluded} asks for leaves no token to go on with"
            given_up = None if self._grammar is None else self._grammar.error
            return what if given_up is None else f"{what} (the grammar was given up: {given_up})"
        return (
            "no token can be drawn: the logits of this row are not finite numbers, or every token is masked"
        )

    def take(self, burst: Sequence[Taken]) -> FinishCause | None:
        """Judge tokens that were just read, one after the other, and tell the consumer; a token after the row's end is
        not looked at."""
        for taken in burst:
            cause = self._take(taken)
            if cause is not None:
                return cause
        return None

    def _take(self, taken: Taken) -> FinishCause | None:
        self._piece_of_text = ""
        before = len(self.generated)
        step = FinishInput(
            taken.token, self._eos, self.generated, self.history, self.max_tokens, self.request.loop_detection
        )
        if before == 0 and self.prompt_logprobs is not None:
            self._emit(Event(prompt_logprobs=self.prompt_logprobs))
        cause = finish_step(step, self)
        if len(self.generated) > before:
            self.clock.tokens.append(time.monotonic_ns())
            if taken.surprise is not None and self.parameters.sampling.mirostat:
                settings = self.parameters.sampling
                mu = mirostat.initial(settings) if self.mu is None else self.mu
                self.mus.append(mirostat.following(settings, mu, taken.surprise))
            if taken.entry is not None:
                self.logprobs.append(taken.entry)
            self.text += self._piece_of_text
            delta = None if self._answer is None else self._answer.push(self._piece_of_text)
            self._emit(Event(before, taken.token, self._piece_of_text, taken.entry, delta=delta))
        return cause

    def finish(self, cause: FinishCause, error: str | None = None) -> None:
        """End the row, flush its text once and send its result; a later call changes nothing."""
        if self.cause is not None:
            return
        self.cause, self.error = cause, error
        tail, delta = "", None
        try:
            tail, _ = self._indent.push(self._stream.finish())
            self.text += tail
            delta = None if self._answer is None else self._answer.finish(tail)
        except Exception as failure:  # the boundary that owns the row: it ends all the same, and says why
            _log.exception("the end of a row's text failed")
            self.cause, self.error = FinishCause.ERROR, error_line(failure)
        self.clock.finished = time.monotonic_ns()
        try:
            self._emit(Event(text=tail, result=self._finished(self), delta=delta))
        except Exception:  # nobody is left to be told
            _log.exception("the consumer of a row failed at its end")

    def logprob_entry(
        self, token: int, logprobs: np.ndarray, alternatives: np.ndarray
    ) -> dict[str, Any] | None:
        """The wire's entry for one token: logprobs float32 [1 + n] with the drawn token's first, alternatives [n]."""
        count = self.parameters.top_logprobs
        return None if count is None else self._entry(token, logprobs, alternatives, count)

    def tell_prompt(self, token: int, logprobs: np.ndarray, alternatives: np.ndarray) -> None:
        """Note down the next token of the prompt."""
        if self.prompt_logprobs is None:
            raise ValueError("this row did not ask for its prompt's logprobs")
        count = self.request.prompt_logprobs or 0
        first = not any(entry["bytes"] for entry in self.prompt_logprobs)
        self.prompt_logprobs.append(self._entry(token, logprobs, alternatives, count, first=first))

    def _entry(
        self, token: int, logprobs: np.ndarray, alternatives: np.ndarray, count: int, *, first: bool = False
    ) -> dict[str, Any]:
        pairs = zip(alternatives[:count], logprobs[1:], strict=False)
        top = [self._spelled(int(t), float(p), first=first) for t, p in pairs]
        return {**self._spelled(token, float(logprobs[0]), first=first), "top_logprobs": top}

    def _spelled(self, token: int, logprob: float | None, *, first: bool = False) -> dict[str, Any]:
        tokenizer = self._tokenizer
        raw = tokenizer.first_token_bytes(token) if first else tokenizer.token_bytes(token)
        return {
            "token_id": token,
            "token": tokenizer.token_text(token),
            "bytes": list(raw),
            "logprob": logprob,
        }

    # what finish_step asks of a row
    def stop_text(self, token: int) -> bool:
        text, stopped = self._stream.push(token)
        self._piece_of_text, dedented = self._indent.push(text)
        if dedented:
            self.truncated_by = "indentation"
        return stopped

    def bound_stopped(self) -> bool:
        limit, now = self.request.max_time_ms, time.monotonic_ns()
        since = now - (self.clock.tokens[0] if self.clock.tokens else now)
        if self.truncated_by is None and limit is not None and since >= limit * 1_000_000:
            self.truncated_by = "time"
        return self.truncated_by is not None

    def structured_stopped(self) -> bool:
        if self._grammar is None:
            return False
        self._grammar.advance(self.generated[-1])
        return self._grammar.complete

    def context_bound_due(self) -> bool:
        due = len(self.history) >= self.context_length
        if due:
            self.truncated_by = "context"
        return due

    def clear_cache(self) -> None:
        self._free_unused()
