"""The request of a body of /v1/responses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tokenline.errors import RequestError
from tokenline.request import Request
from tokenline.request.bounds import require
from tokenline.server.conversation import Conversation, function_tool, named_choice, text_of
from tokenline.server.drawn_request import request_from
from tokenline.server.parsing import renamed, typed
from tokenline.server.responses.bodies import (
    CallItem,
    CallOutputItem,
    Item,
    MessageItem,
    NamedTool,
    ReasoningItem,
    ResponsesBody,
    TextFormat,
)

# The names of this API for what a request calls otherwise.
_NAMES = (
    (re.compile(r"(tools\[\d+\])\.function"), r"\1"),
    (re.compile(r"\bmax_tokens\b"), "max_output_tokens"),
    (re.compile(r"\bjson_schema\b"), "text.format.schema"),
    (re.compile(r"\bmessages\b"), "input"),
)


def responses_requests(body: ResponsesBody, defaults: Mapping[str, Any]) -> list[Request]:
    """The one request."""
    require(body.tools != [], "tools", "tools is empty", "leave it out, or give at least one")
    fields: dict[str, Any] = {
        "messages": tuple(_turns(body)),
        "max_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "parallel_tool_calls": body.parallel_tool_calls,
        "tool_choice": body.tool_choice,
    }
    if body.tools is not None:
        fields["tools"] = tuple(
            function_tool(tool.name, tool.description, tool.parameters, tool.strict) for tool in body.tools
        )
    if isinstance(body.tool_choice, NamedTool):
        fields["tool_choice"] = named_choice(body.tool_choice.name)
    if body.text is not None and body.text.format is not None:
        fields |= _format(body.text.format)
    return [request_from(fields, defaults)]


def responses_spelled(error: RequestError, _: ResponsesBody) -> RequestError:
    """An error of a request under the names of this API."""
    return renamed(error, _NAMES)


def _format(form: TextFormat) -> dict[str, Any]:
    if form.type == "text":
        return {}
    if form.type == "json_object":
        return {"json_object": True}
    require(form.schema is not None, "text.format.schema", "text.format has no schema",
            'write {"type": "json_schema", "name": …, "schema": {…}}')  # fmt: skip
    return {"json_schema": form.schema}


def _turns(body: ResponsesBody) -> list[dict[str, Any]]:
    conversation = Conversation()
    if body.instructions is not None:
        conversation.say("system", body.instructions)
    if isinstance(body.input, str):
        conversation.say("user", body.input)
        return conversation.turns
    require(bool(body.input), "input", "there is no input", "send a text or at least one item")
    for index, given in enumerate(body.input):
        path = f"input[{index}]"
        # A message may leave its type out.
        _add(conversation, typed({"type": "message", **given}, Item, path), path)
    return conversation.turns


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        return False


def _add(conversation: Conversation, item: Item, path: str) -> None:
    match item:
        case MessageItem():
            conversation.say(item.role, text_of(item.content))
        case CallItem():
            require(_is_object(item.arguments), f"{path}.arguments", "the arguments of a call are no JSON object",
                    "send the call as it was answered")  # fmt: skip
            conversation.call(item.call_id, item.name, item.arguments)
        case CallOutputItem():
            conversation.answer(item.call_id, text_of(item.output), f"{path}.call_id")
        case ReasoningItem():
            conversation.think(text_of(item.content))
