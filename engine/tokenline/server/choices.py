"""What the answers of completions and chat share: choices, usage, timings, details, and how a row's end is told."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tokenline.errors import RequestError
from tokenline.request import Request
from tokenline.server.bodies import CommonBody
from tokenline.server.errors import openai_envelope
from tokenline.server.reply import COMMENT, Json
from tokenline.server.timings import timings_of

if TYPE_CHECKING:
    from tokenline.client import Model
    from tokenline.row import Event

DETAILS = ("prompt_token_ids", "token_ids", "finish_cause", "truncated", "timings", "manifest", "counters")
# OpenAI's word for a token that cannot be drawn; JSON has none for minus infinity.
IMPOSSIBLE = -9999.0


@dataclass(kw_only=True)
class ChoicesReply(ABC):
    """A `reply.Reply`. An endpoint says what a choice looks like; all else is the same."""

    model: Model
    name: str
    body: CommonBody
    requests: Sequence[Request]
    created: int = field(default_factory=lambda: int(time.time()))
    id: str = field(init=False)

    named: ClassVar[bool] = False
    ping: ClassVar[bytes] = COMMENT
    last: ClassVar[bytes] = b"data: [DONE]\n\n"
    prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __post_init__(self) -> None:
        self.id = f"{self.prefix}-{secrets.token_hex(12)}"

    @abstractmethod
    def choice(self, index: int, result: Json) -> Json:
        """A finished choice, without its index and finish reason."""

    @abstractmethod
    def delta(self, index: int, event: Event) -> Json | None:
        """What one event adds to a choice; None for nothing."""

    @abstractmethod
    def closing(self) -> Json:
        """The choice of a last chunk, which carries only the finish reason."""

    def opening(self, prompt_lengths: Sequence[int]) -> Iterator[Json]:
        return iter(())

    def whole(self, results: Sequence[Json]) -> Json:
        choices = [
            {"index": index, **self.choice(index, result), **self._end(result)}
            for index, result in enumerate(results)
        ]
        return {
            **self._head(self.whole_object),
            "choices": choices,
            "usage": self.usage(results),
            "timings": timings_of(results),
        }

    def chunks(self, index: int, event: Event) -> Iterator[Json]:
        """An event as chunks: one for a token; for a row's end one for the tail, if any, and one for the reason."""
        delta = self.delta(index, event)
        if delta is not None:
            yield self.chunk({"index": index, **delta, "finish_reason": None})
        if event.result is not None:
            last = self.chunk({"index": index, **self.closing(), **self._end(event.result)})
            yield {**last, "timings": timings_of([event.result])}

    def chunk(self, choice: Json) -> Json:
        usage = {"usage": None} if self.body.include_usage else {}
        return {**self._head(self.chunk_object), "choices": [choice], **usage}

    def ending(self, results: Sequence[Json]) -> Iterator[Json]:
        if self.body.include_usage:
            told = {"choices": [], "usage": self.usage(results), "timings": timings_of(results)}
            yield {**self._head(self.chunk_object), **told}

    def failure(self, error: RequestError) -> Json:
        return openai_envelope(error)

    def usage(self, results: Sequence[Json]) -> Json:
        """A prompt counts once, however many answers it got; what its first row found in the cache was cached."""
        prompts = [result["usage"] for result in results[:: self.body.choices]]
        prompt = sum(usage["prompt_tokens"] for usage in prompts)
        completion = sum(result["usage"]["completion_tokens"] for result in results)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(usage["cached_tokens"] for usage in prompts)},
        }

    def _head(self, kind: str) -> Json:
        manifest = self.model.manifest
        fingerprint = f"{manifest['backend']}-{manifest['dtype']}-{manifest['weights_hash'][:12]}"
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.name,
            "system_fingerprint": fingerprint,
        }

    def _end(self, result: Json) -> Json:
        end: Json = {"finish_reason": result["finish_reason"]}
        if self.body.return_details:
            end["details"] = {name: result[name] for name in DETAILS}
        return end


def logprob_of(entry: Json) -> float:
    return max(entry["logprob"], IMPOSSIBLE)
