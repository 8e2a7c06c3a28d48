"""An answer of OpenAI's interface, whole or gathered from events, read with nothing made up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paritygate.arms.dialects import Dialect
from paritygate.arms.vocabulary_piece import text_of_piece
from paritygate.case import Case
from paritygate.stream import Position, TopToken, Usage


@dataclass
class Gathered:
    """One choice as far as it has come; events add to it, a whole answer is added once."""

    texts: list[str] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    details: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None

    def add(self, answer: dict[str, Any], arrived_ns: int) -> None:
        """Raises KeyError or TypeError where it is not an answer."""
        self.usage = answer.get("usage") or self.usage
        self.prompt_token_ids = answer.get("prompt_token_ids") or self.prompt_token_ids
        for choice in answer["choices"]:
            if choice.get("index", 0) != 0:
                continue
            part = choice.get("message") or choice.get("delta")
            text = choice.get("text") if part is None else part.get("content")
            if text:
                self.texts.append(text)
                self.arrivals.append(arrived_ns)
            self.entries += entries_of(choice.get("logprobs"))
            if (ids := choice.get("token_ids")) is not None:
                self.token_ids = (self.token_ids or []) + list(ids)
            self.prompt_token_ids = choice.get("prompt_token_ids") or self.prompt_token_ids
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            self.stop_reason = choice.get("stop_reason", self.stop_reason)
            self.details = choice.get("details") or self.details

    @property
    def text(self) -> str:
        return "".join(self.texts)


def entries_of(logprobs: Any) -> list[dict[str, Any]]:
    """Either shape, chat's {content: [...]} or the older {tokens, token_logprobs, top_logprobs}, as chat's entries."""
    if not isinstance(logprobs, dict):
        return []
    if "content" in logprobs:
        return list(logprobs["content"] or ())
    tokens = logprobs.get("tokens") or ()
    given, tops = logprobs.get("token_logprobs") or (), logprobs.get("top_logprobs") or [None] * len(tokens)
    return [
        {
            "token": token,
            "logprob": logprob,
            "top_logprobs": [{"token": text, "logprob": value} for text, value in (top or {}).items()],
        }
        for token, logprob, top in zip(tokens, given, tops, strict=True)
    ]


def _id(entry: dict[str, Any]) -> int | None:
    told = entry.get("id", entry.get("token_id"))
    return told if isinstance(told, int) else None


def positions_of(
    entries: Iterable[dict[str, Any]],
    token_ids: Sequence[int] | None,
    count: int,
    dialect: Dialect,
) -> tuple[Position, ...]:
    """Positions with `count` alternatives, likeliest first; an id that the server does not tell is None."""

    def text(entry: dict[str, Any]) -> str:
        told = entry.get("token", "")
        return text_of_piece(told) if dialect.spells_pieces else told

    found = []
    for index, entry in enumerate(entries):
        if entry.get("logprob") is None:
            break
        top = sorted(entry.get("top_logprobs") or (), key=lambda one: -one["logprob"])
        drawn = token_ids[index] if token_ids is not None and index < len(token_ids) else _id(entry)
        # Where entries name another alternative than the one drawn, what is told of the drawn one counts.
        own = next((one for one in top if drawn is not None and _id(one) == drawn), entry)
        found.append(
            Position(
                token_id=drawn,
                token=text(own),
                logprob=own["logprob"],
                top=tuple(TopToken(_id(one), text(one), one["logprob"]) for one in top[:count]),
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class Ending:
    """How an answer ended and what it holds, without the end-of-sequence token."""

    token_ids: tuple[int, ...] | None
    cause: str | None
    usage: Usage | None
    reported: dict[str, int]


def _cause(gathered: Gathered, case: Case) -> str | None:
    if gathered.finish_reason == "length":
        return "Length"
    if gathered.finish_reason != "stop":
        return None
    if not case.stop:
        return "Eos"
    # With stop strings either may have ended it; only vLLM says which.
    return "StopSequence" if isinstance(gathered.stop_reason, str) else None


def ending_of(gathered: Gathered, case: Case, dialect: Dialect) -> Ending:
    """Read the end in the server's own convention; what it cannot tell apart is None."""
    cause = _cause(gathered, case)
    ids = gathered.token_ids
    if ids is None and dialect.tells_ids and gathered.entries:
        ids = _drawn(gathered.entries)
    usage, reported = None, {}
    if gathered.usage is not None:
        told = gathered.usage
        completion = told["completion_tokens"]
        if dialect.counts_end and cause == "Eos":
            reported = {"reported_completion_tokens": completion}
            completion -= 1
        usage = Usage(
            prompt_tokens=told["prompt_tokens"],
            completion_tokens=completion,
            total_tokens=told["prompt_tokens"] + completion,
            cached_tokens=(told.get("prompt_tokens_details") or {}).get("cached_tokens"),
        )
    if ids is not None and dialect.counts_end and gathered.finish_reason == "stop":
        # Whether the last id ended the answer is only known where no stop string can have done so.
        ids = ids[:-1] if cause == "Eos" else ids if cause == "StopSequence" else None
    return Ending(None if ids is None else tuple(ids), cause, usage, reported)


def _drawn(entries: list[dict[str, Any]]) -> list[int] | None:
    """The ids of a greedy answer: the likeliest alternative of each entry, or the entry's own where it has none."""
    ids = []
    for entry in entries:
        tops = entry.get("top_logprobs") or ()
        told = _id(max(tops, key=lambda one: one["logprob"])) if tops else _id(entry)
        if told is None:
            return None
        ids.append(told)
    return ids
