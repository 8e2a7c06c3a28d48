"""The answer of /v1/responses: output items, whole or in OpenAI's sequence of events."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tokenline.errors import RequestError
from tokenline.request import Request
from tokenline.server.blocks import Blocks
from tokenline.server.errors import openai_envelope
from tokenline.server.reply import COMMENT, Json
from tokenline.server.responses.bodies import NamedTool, ResponsesBody, TextFormat
from tokenline.server.responses.items import events_of, item_of

if TYPE_CHECKING:
    from tokenline.client import Model
    from tokenline.row import Event


@dataclass(kw_only=True)
class ResponseReply:
    """A `reply.Reply`; every event has the next sequence number."""

    model: Model
    name: str
    body: ResponsesBody
    requests: Sequence[Request]
    id: str = field(default_factory=lambda: f"resp_{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))
    _blocks: Blocks = field(default_factory=Blocks)
    _thought: int = 0
    _sent: int = 0

    named: ClassVar[bool] = True
    ping: ClassVar[bytes] = COMMENT
    last: ClassVar[bytes] = b""

    def whole(self, results: Sequence[Json]) -> Json:
        [result] = results
        last = len(self._blocks.all) - 1
        status = _status(result)
        output = [
            item_of(self.id, block, status if block.index == last else "completed")
            for block in self._blocks.all
        ]
        return self._response(status, output, result)

    def opening(self, prompt_lengths: Sequence[int]) -> Iterator[Json]:
        begun = self._response("in_progress", [], None)
        yield self._numbered({"type": "response.created", "response": begun})
        yield self._numbered({"type": "response.in_progress", "response": begun})

    def chunks(self, index: int, event: Event) -> Iterator[Json]:
        for step in self._blocks.push(event.delta or {}):
            for told in events_of(self.id, step, "completed"):
                yield self._numbered(told)
        if event.token_id is not None and all(block.kind == "thinking" for block in self._blocks.all):
            self._thought += 1
        if event.result is not None:
            for step in self._blocks.close():
                for told in events_of(self.id, step, _status(event.result)):
                    yield self._numbered(told)

    def ending(self, results: Sequence[Json]) -> Iterator[Json]:
        answer = self.whole(results)
        yield self._numbered({"type": f"response.{answer['status']}", "response": answer})

    def failure(self, error: RequestError) -> Json:
        """OpenAI's error event, with the envelope in it, which their client raises."""
        told = openai_envelope(error)
        flat = {name: told["error"][name] for name in ("code", "message", "param")}
        return self._numbered({"type": "error", **flat, **told})

    def _numbered(self, event: Json) -> Json:
        self._sent += 1
        return {**event, "sequence_number": self._sent - 1}

    def _response(self, status: str, output: list[Json], result: Json | None) -> Json:
        body, [request] = self.body, self.requests
        sampling = request.sampling
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "model": self.name,
            "output": output,
            "usage": None if result is None else self._usage(result),
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "metadata": body.metadata or {},
            "parallel_tool_calls": request.parallel_tool_calls,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "previous_response_id": None,
            "prompt_cache_key": body.prompt_cache_key,
            "reasoning": None,
            "safety_identifier": body.safety_identifier,
            "service_tier": "default",
            "store": False,
            "background": False,
            "temperature": sampling.temperature,
            "text": {"format": _format(body.text.format if body.text is not None else None)},
            "tool_choice": _choice(body),
            "tools": [msgspec.to_builtins(tool) for tool in body.tools or ()],
            "top_logprobs": 0,
            "top_p": sampling.top_p,
            "truncation": "disabled",
            **({} if body.user is None else {"user": body.user}),
        }

    def _usage(self, result: Json) -> Json:
        """What was drawn before anything but thoughts began counts as reasoning, marks included."""
        usage = result["usage"]
        thinks = bool(self._blocks.all) and self._blocks.all[0].kind == "thinking"
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": usage["cached_tokens"], "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": self._thought if thinks else 0},
            "total_tokens": usage["total_tokens"],
        }


def _status(result: Json) -> str:
    return "incomplete" if result["finish_reason"] == "length" else "completed"


def _format(form: TextFormat | None) -> Json:
    if form is None or form.type != "json_schema":
        return {"type": "text" if form is None else form.type}
    return {name: value for name, value in msgspec.structs.asdict(form).items() if value is not None}


def _choice(body: ResponsesBody) -> Json | str:
    if isinstance(body.tool_choice, NamedTool):
        return {"type": "function", "name": body.tool_choice.name}
    return body.tool_choice or "auto"
