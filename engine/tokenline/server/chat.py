"""/v1/chat/completions: its choices and its logprobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tokenline.server.choices import ChoicesReply, logprob_of
from tokenline.server.reply import Json

if TYPE_CHECKING:
    from tokenline.row import Event


@dataclass(kw_only=True)
class ChatReply(ChoicesReply):
    prefix: ClassVar[str] = "chatcmpl"
    whole_object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def choice(self, index: int, result: Json) -> Json:
        entries = result["logprobs"]
        return {
            "message": {**result["message"], "refusal": None},
            "logprobs": None if entries is None else _logprobs(entries),
        }

    def opening(self, prompt_lengths: Sequence[int]) -> Iterator[Json]:
        for index in range(self.body.choices):
            delta = {"role": "assistant", "content": "", "refusal": None}
            yield self.chunk({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})

    def delta(self, index: int, event: Event) -> Json | None:
        if event.result is not None and not event.delta:
            return None
        logprobs = None if event.logprobs is None else _logprobs([event.logprobs])
        # A chunk for every token, also where its text is held back.
        return {"delta": event.delta or {"content": ""}, "logprobs": logprobs}

    def closing(self) -> Json:
        return {"delta": {}, "logprobs": None}


def _logprobs(entries: Iterable[Json]) -> Json:
    content = [
        {**_token(entry), "top_logprobs": [_token(top) for top in entry["top_logprobs"]]} for entry in entries
    ]
    return {"content": content, "refusal": None}


def _token(entry: Json) -> Json:
    return {"token": entry["token"], "logprob": logprob_of(entry), "bytes": list(entry["bytes"])}
