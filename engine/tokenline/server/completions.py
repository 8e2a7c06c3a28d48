"""/v1/completions: its choices and its legacy logprobs."""

from __future__ import annotations

import codecs
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tokenline.server.bodies import CompletionBody
from tokenline.server.choices import ChoicesReply, logprob_of
from tokenline.server.reply import Json

if TYPE_CHECKING:
    from tokenline.row import Event


class TextOffsets:
    """Where each token starts in its choice's text, in code points."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._characters = 0

    def next(self, entry: Json) -> int:
        """The offset of this token; a token inside a character starts where the character does."""
        start = self._characters
        self._characters += len(self._decoder.decode(bytes(entry["bytes"])))
        return start


@dataclass(kw_only=True)
class CompletionReply(ChoicesReply):
    body: CompletionBody
    prefix: ClassVar[str] = "cmpl"
    whole_object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"
    offsets: defaultdict[int, TextOffsets] = field(default_factory=lambda: defaultdict(TextOffsets))

    def choice(self, index: int, result: Json) -> Json:
        entries, of_prompt = result["logprobs"], result.get("prompt_logprobs", [])
        if self.body.echo and entries is not None:
            entries = [*of_prompt, *entries]
        logprobs = None if entries is None else _legacy_logprobs(entries, TextOffsets())
        choice = {"text": self._echo(index) + result["text"], "logprobs": logprobs}
        return choice if self.body.prompt_logprobs is None else {**choice, "prompt_logprobs": of_prompt}

    def opening(self, prompt_lengths: Sequence[int]) -> Iterator[Json]:
        for index in range(len(self.requests) if self.body.echo else 0):
            choice = {"index": index, "text": self._echo(index), "logprobs": None, "finish_reason": None}
            yield self.chunk(choice)

    def _echo(self, index: int) -> str:
        """What stands before the answer: the prompt, where it is asked for."""
        if not self.body.echo:
            return ""
        asked = self.requests[index]
        if asked.prompt is not None:
            return asked.prompt
        return self.model.tokenizer.decode(asked.prompt_token_ids or ())

    def delta(self, index: int, event: Event) -> Json | None:
        if event.prompt_logprobs is not None:
            choice: Json = {"text": "", "logprobs": None}
            if self.body.echo and self.body.logprobs is not None:
                choice["logprobs"] = _legacy_logprobs(event.prompt_logprobs, self.offsets[index])
            if self.body.prompt_logprobs is not None:
                choice["prompt_logprobs"] = event.prompt_logprobs
            return choice
        if event.result is not None and not event.text:
            return None
        entries = [] if event.logprobs is None else [event.logprobs]
        logprobs = _legacy_logprobs(entries, self.offsets[index]) if entries else None
        return {"text": event.text, "logprobs": logprobs}

    def closing(self) -> Json:
        return {"text": "", "logprobs": None}


def _legacy_logprobs(entries: Iterable[Json], offsets: TextOffsets) -> Json:
    tokens, token_logprobs, text_offset = [], [], []
    top_logprobs: list[dict[str, float] | None] = []
    for entry in entries:
        tokens.append(_spelled(entry))
        token_logprobs.append(None if entry["logprob"] is None else logprob_of(entry))
        if entry["logprob"] is None:
            top_logprobs.append(None)  # the first token of an echo
        else:
            # The token that was drawn is always among them, also when it is none of the likeliest.
            top_logprobs.append({_spelled(top): logprob_of(top) for top in [*entry["top_logprobs"], entry]})
        text_offset.append(offsets.next(entry))
    return {
        "tokens": tokens,
        "token_logprobs": token_logprobs,
        "top_logprobs": top_logprobs,
        "text_offset": text_offset,
    }


def _spelled(entry: Json) -> str:
    """A token's text; one that is part of a character is spelled in bytes, as OpenAI does, to be told from others."""
    data = bytes(entry["bytes"])
    try:
        data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
    return entry["token"]
