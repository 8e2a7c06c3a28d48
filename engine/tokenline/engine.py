"""Prefill, step, finish: a batch of rows on one backend; one request is a batch with one row.

Steps are pipelined. The token of step n is drawn on the device and stays there; the forward of step n + 1 is submitted
from it before the host reads it. Where no row's sampler reads a history, the draw of n + 1 is submitted as well; where
one does, the draw waits until token n is in the history.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from tokenline.cache import LayerCache
from tokenline.checkpoint.adapters import Adapters
from tokenline.decode.finish import FinishCause
from tokenline.decode.prefill_plan import Piece
from tokenline.decode.sampling import Drawn, RowDraw, sample, told_of
from tokenline.errors import RowError
from tokenline.models import Model
from tokenline.ops import Array, Ops
from tokenline.prompt_cache import PromptCache, Trail
from tokenline.row import Row, Taken, error_line

_log = logging.getLogger("tokenline")
T = TypeVar("T")

# Prompt positions that the head runs over at once where their logprobs are asked for: 64 times a vocabulary is what
# fits beside a piece.
PROMPT_HEAD_ROWS = 64


class Engine:
    def __init__(
        self,
        ops: Ops,
        model: Model,
        prompt_cache: PromptCache,
        namespace: str,
        *,
        pipelined: bool = True,
        adapters: Adapters | None = None,
    ) -> None:
        self._ops, self._model, self._prompt_cache = ops, model, prompt_cache
        self._adapters = adapters or Adapters()
        # By lane: an adapter's states are nobody else's, under whatever name it goes.
        self.namespaces = {"": namespace} | {
            name: f"{namespace}:{content}" for name, content in self._adapters.hashes.items()
        }
        self.pipelined = pipelined
        self._rows: list[Row] = []
        self._caches: list[LayerCache] = []
        self._pending: Drawn | None = None  # drawn, not yet read: one token for each of self._rows
        self._opened: set[Row] = set()

    @property
    def rows(self) -> Sequence[Row]:
        """The rows that decode."""
        return tuple(self._rows)

    @property
    def live_bytes(self) -> int:
        prefilling = sum(cache.nbytes for row in self._opened for cache in row.caches)
        return prefilling + sum(cache.nbytes for cache in self._caches)

    def open(self, row: Row) -> None:
        """Start a row: adopt what the prompt cache has of it and lay out the rest of its plan."""
        copied = self._ops.counters.bytes_copied
        count = 0
        if row.request.cache_prompt:
            # A lane that is no adapter's is computed with the model's own weights.
            namespace = self.namespaces.get(row.lane, self.namespaces[""])
            row.trail = Trail.of(namespace, row.prompt, row.plan)
        # Logprobs of the prompt need every hidden state of it, and a stored state holds none: such a row runs cold.
        if row.request.cache_prompt and row.request.prompt_logprobs is None:
            count, row.caches = self._prompt_cache.adopt(row.trail)
        row.caches = row.caches or self._model.new_caches()
        row.pieces = row.plan.after_hit(count).pieces()
        row.counters.cached_tokens = count
        row.counters.bytes_copied += self._ops.counters.bytes_copied - copied
        self._opened.add(row)

    def prefill(self, row: Row) -> bool:
        """Run the row's next piece; True when it was the last, the first token is drawn and the row has joined."""
        copied = self._ops.counters.bytes_copied
        piece = row.pieces.pop(0)
        ids = self._ops.array(np.asarray([row.prompt[piece.start : piece.stop]]))
        with self._adapters.using(row.lane):
            hidden = self._model.hidden(ids, row.caches)
        row.counters.prefill_pieces.append((piece.start, piece.stop))
        row.counters.prefill_forwards += 1
        if row.pieces and row.request.cache_prompt:
            self._prompt_cache.store(row.trail, piece, row.caches, self.live_bytes)
        if row.request.prompt_logprobs is not None:
            self._report_prompt(row, piece, hidden)
        if row.pieces:
            self._ops.submit(hidden)
            row.counters.bytes_copied += self._ops.counters.bytes_copied - copied
            return False
        logits = self._head(hidden[:, -1], [row])
        self._join(row, self._drawn(logits, [row], 0))
        row.counters.bytes_copied += self._ops.counters.bytes_copied - copied
        return True

    def _report_prompt(self, row: Row, piece: Piece, hidden: Array) -> None:
        """Log probabilities of the tokens that follow the piece's positions."""
        last = min(piece.stop, len(row.prompt) - 1)
        for start in range(piece.start, last, PROMPT_HEAD_ROWS):
            stop = min(start + PROMPT_HEAD_ROWS, last)
            logits = self._head(hidden[0, start - piece.start : stop - piece.start], [row])
            tokens = row.prompt[start + 1 : stop + 1]
            told = told_of(
                self._ops,
                self._ops.to_float32(logits),
                self._ops.array(np.asarray(tokens)),
                max(1, row.request.prompt_logprobs or 0),
            )
            row.counters.host_reads += 1
            for token, logprobs, alternatives in zip(tokens, *self._ops.read(told), strict=True):
                row.tell_prompt(token, logprobs, alternatives)

    def _join(self, row: Row, drawn: Drawn) -> None:
        self._opened.discard(row)
        if not self._rows or self._pending is None:
            self._caches, self._pending = row.caches, drawn
        else:
            for ours, theirs in zip(self._caches, row.caches, strict=True):
                ours.extend(theirs)
            self._pending = self._pending.joined(self._ops, drawn)
        self._rows.append(row)
        row.caches = []
        self._prompt_cache.make_room(self.live_bytes)

    def step(self) -> None:
        """Read the pending token of every row, decide, and have the next one drawn; finished rows leave."""
        if self._pending is None:
            return
        for row in self._rows:
            row.counters.max_rows = max(row.counters.max_rows, len(self._rows))
        waits = any(row.needs_history for row in self._rows)
        logits: Array | None = None
        ahead: Drawn | None = None
        if self.pipelined and not all(row.last_token_pending for row in self._rows):
            logits = self._forward(self._pending.tokens)
            if not waits:
                ahead = self._draw(logits, 1)
        rows, pending = list(self._rows), self._pending  # a row that failed has left
        keep = self._decide(rows, pending)
        self._drop([row for i, row in enumerate(rows) if i not in set(keep)])
        if not keep:
            return
        if logits is None:
            tokens = pending.tokens if len(keep) == len(rows) else self._ops.take(pending.tokens, keep)
            self._pending = self._draw(self._forward(tokens), 0)
        elif ahead is None:
            self._pending = self._draw(logits if len(keep) == len(rows) else self._ops.take(logits, keep), 0)
        else:
            self._pending = ahead if len(keep) == len(rows) else ahead.rows(self._ops, keep)

    def _forward(self, tokens: Array) -> Array:
        """Logits of the rows' next tokens. A row that cannot be computed ends, and leaves, alone."""
        length = self._caches[0].length if self._caches else 0
        try:
            return self._run(tokens, self._rows, self._caches)
        except Exception as error:
            if len(self._rows) == 1 or not all(cache.return_to(length) for cache in self._caches):
                raise
            _log.exception("a step failed: each of its rows is run alone")
            return self._run_apart(tokens, error)

    def _run(self, tokens: Array, rows: Sequence[Row], caches: Sequence[LayerCache]) -> Array:
        with self._adapters.using(rows[0].lane):
            hidden = self._model.hidden(tokens[:, None], caches)
        logits = self._head(hidden[:, -1], rows)
        self._ops.submit(logits)
        for row in rows:
            row.counters.decode_forwards += 1
        return logits

    def _run_apart(self, tokens: Array, error: Exception) -> Array:
        """The same, row by row, put together again of those that could be run."""
        parts = [[cache.extract(index) for cache in self._caches] for index in range(len(self._rows))]
        ran = self._each_alone(
            lambda index, row: self._run(tokens[index : index + 1], [row], parts[index]), error
        )
        first, *others = ran
        self._caches = parts[first]
        for index in others:
            for ours, theirs in zip(self._caches, parts[index], strict=True):
                ours.extend(theirs)
        if self._pending is not None and len(ran) < len(self._rows):
            self._pending = self._pending.rows(self._ops, list(ran))
        self._rows = [self._rows[index] for index in ran]
        return self._ops.concat(list(ran.values()), 0)

    def _each_alone(self, compute: Callable[[int, Row], T], error: Exception) -> dict[int, T]:
        """By the row's index what can be computed for it; one that cannot ends. The error where none can."""
        computed: dict[int, T] = {}
        for index, row in enumerate(self._rows):
            try:
                computed[index] = compute(index, row)
            except Exception as own:  # the boundary that owns the row
                row.finish(FinishCause.ERROR, error_line(own))
        if not computed:
            raise error
        return computed

    def _head(self, hidden: Array, rows: Sequence[Row]) -> Array:
        """Logits of hidden states that belong to these rows alike; what is counted is what the head was given."""
        for row in rows:
            row.counters.head_positions += math.prod(hidden.shape[:-1]) // len(rows)
        with self._adapters.using(rows[0].lane):
            return self._model.logits(hidden)

    def _draw(self, logits: Array, unread: int) -> Drawn:
        """Draw for the rows, of whose tokens `unread` are drawn and not yet in their text. One that cannot be drawn for
        ends, and leaves, alone."""
        try:
            return self._drawn(logits, self._rows, unread)
        except Exception as error:
            if len(self._rows) == 1:
                raise
            _log.exception("a draw failed: each row is drawn for alone")
            drawn = self._each_alone(
                lambda index, row: self._drawn(logits[index : index + 1], [row], unread), error
            )
            self._drop([row for index, row in enumerate(self._rows) if index not in drawn])
            return functools.reduce(lambda one, other: one.joined(self._ops, other), drawn.values())

    def _drawn(self, logits: Array, rows: Sequence[Row], unread: int) -> Drawn:
        draws = [
            RowDraw(row.parameters, row.position + unread, row.history, row.mu, row.allowed()) for row in rows
        ]
        drawn = sample(self._ops, logits, draws)
        self._ops.submit(*drawn.arrays())
        return drawn

    def _decide(self, rows: Sequence[Row], drawn: Drawn) -> list[int]:
        """Read the tokens and judge them; returns the indices of the rows that go on."""
        read = drawn.read(self._ops)
        keep = []
        for index, row in enumerate(rows):
            row.counters.host_reads += 1
            if not read.valid[index]:
                row.error_param = row.excluded
                row.finish(FinishCause.ERROR, str(RowError(row.undrawable)))
                continue
            entry = None
            token = int(read.tokens[index])
            if read.logprobs is not None and read.alternatives is not None:
                entry = row.logprob_entry(token, read.logprobs[index], read.alternatives[index])
            surprise = None if read.surprises is None else float(read.surprises[index])
            try:
                cause = row.take([Taken(token, entry, surprise)])
            except Exception as own:  # the boundary that owns the row
                _log.exception("a row's token could not be taken")
                row.finish(FinishCause.ERROR, error_line(own))
                continue
            if cause is None:
                keep.append(index)
            else:
                row.finish(cause)
        return keep

    def finish_rows(self, rows: Sequence[Row], cause: FinishCause, error: str | None = None) -> None:
        """End rows from outside: cancelled, or failed; their state is never given to the prompt cache."""
        for row in rows:
            row.finish(cause, error)
        self._drop(rows)

    def _drop(self, rows: Sequence[Row]) -> None:
        leaving = set(rows)
        self._opened -= leaving
        for row in leaving:
            row.caches = []
        keep = [i for i, row in enumerate(self._rows) if row not in leaving]
        if len(keep) == len(self._rows):
            return
        if keep:
            for cache in self._caches:
                cache.filter(keep)
            if self._pending is not None:
                self._pending = self._pending.rows(self._ops, keep)
        else:
            self._caches, self._pending = [], None
        self._rows = [self._rows[i] for i in keep]

    def close(self) -> None:
        self.finish_rows([*self._rows, *self._opened], FinishCause.CANCELLED)
        self._prompt_cache.clear()
