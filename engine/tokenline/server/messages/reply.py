"""The answer of /v1/messages: a message of blocks, whole or in Anthropic's sequence of events."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tokenline.errors import RequestError
from tokenline.request import Request
from tokenline.server.blocks import Block, Blocks, Step
from tokenline.server.errors import anthropic_envelope
from tokenline.server.messages.bodies import MessagesBody
from tokenline.server.reply import Json

if TYPE_CHECKING:
    from tokenline.client import Model
    from tokenline.row import Event

PING: Json = {"type": "ping"}
_OPENED: dict[str, Json] = {
    "text": {"type": "text", "text": "", "citations": None},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


@dataclass(kw_only=True)
class MessageReply:
    """A `reply.Reply`."""

    model: Model
    name: str
    body: MessagesBody
    requests: Sequence[Request]
    id: str = field(default_factory=lambda: f"msg_{secrets.token_hex(12)}")
    _blocks: Blocks = field(default_factory=Blocks)

    named: ClassVar[bool] = True
    ping: ClassVar[bytes] = b'event: ping\ndata: {"type":"ping"}\n\n'
    last: ClassVar[bytes] = b""

    def whole(self, results: Sequence[Json]) -> Json:
        [result] = results
        content = [_content(block) for block in self._blocks.all]
        return self._message(content, _ending(result), _usage(result))

    def opening(self, prompt_lengths: Sequence[int]) -> Iterator[Json]:
        """The message before its content; what of the prompt was cached is known, and told, at the end."""
        usage = _whole_usage(prompt_lengths[0], 0, 0)
        nothing = {"stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": self._message([], nothing, usage)}
        yield PING

    def chunks(self, index: int, event: Event) -> Iterator[Json]:
        for step in self._blocks.push(event.delta or {}):
            yield _event(step)
        if event.result is not None:
            for step in self._blocks.close():
                yield _event(step)

    def ending(self, results: Sequence[Json]) -> Iterator[Json]:
        [result] = results
        usage = _usage(result)
        told = (
            "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens",
            "output_tokens_details", "server_tool_use",
        )  # fmt: skip
        yield {
            "type": "message_delta",
            "delta": {**_ending(result), "stop_details": None, "container": None},
            "usage": {name: usage[name] for name in told},
        }
        yield {"type": "message_stop"}

    def failure(self, error: RequestError) -> Json:
        return anthropic_envelope(error)

    def _message(self, content: list[Json], ending: Json, usage: Json) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.name,
            "content": content,
            **ending,
            "stop_details": None,
            "container": None,
            "usage": usage,
        }


def _event(step: Step) -> Json:
    block, at = step.block, {"index": step.block.index}
    match step.what:
        case "open":
            return {"type": "content_block_start", **at, "content_block": _opened(block)}
        case "close":
            return {"type": "content_block_stop", **at}
    match block.kind:
        case "thinking":
            delta = {"type": "thinking_delta", "thinking": step.text}
        case "call":
            delta = {"type": "input_json_delta", "partial_json": step.text}
        case _:
            delta = {"type": "text_delta", "text": step.text}
    return {"type": "content_block_delta", **at, "delta": delta}


def _opened(block: Block) -> Json:
    return _OPENED.get(block.kind) or _call(block, {})


def _content(block: Block) -> Json:
    match block.kind:
        case "call":
            return _call(block, _input(block.text))
        case kind:
            return {**_OPENED[kind], kind: block.text}


def _call(block: Block, given: msgspec.Raw | Json) -> Json:
    return {
        "type": "tool_use",
        "id": block.id,
        "name": block.name,
        "input": given,
        "caller": {"type": "direct"},
    }


def _input(arguments: str) -> msgspec.Raw | Json:
    """The arguments as the model wrote them; none of a call that `max_tokens` cut off, which is no JSON."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return msgspec.Raw(arguments.encode())


def _ending(result: Json) -> Json:
    match result["finish_reason"]:
        case "tool_calls":
            reason = "tool_use"
        case "length":
            exhausted = result["finish_cause"] == "ContextExhausted"
            reason = "model_context_window_exceeded" if exhausted else "max_tokens"
        case _:
            reason = "stop_sequence" if result["stop_sequence"] is not None else "end_turn"
    return {"stop_reason": reason, "stop_sequence": result["stop_sequence"]}


def _usage(result: Json) -> Json:
    usage = result["usage"]
    return _whole_usage(usage["prompt_tokens"], usage["cached_tokens"], usage["completion_tokens"])


def _whole_usage(asked: int, cached: int, drawn: int) -> Json:
    """Anthropic counts what was read from the cache apart; nothing is told to be written, as every prefix is."""
    return {
        "input_tokens": asked - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "cache_creation": None,
        "output_tokens": drawn,
        "output_tokens_details": None,
        "server_tool_use": None,
        "service_tier": "standard",
        "inference_geo": None,
    }
