"""The request of a body of /v1/messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tokenline.errors import RequestError
from tokenline.request import Request
from tokenline.request.bounds import require
from tokenline.server.conversation import Conversation, function_tool, named_choice, text_of
from tokenline.server.drawn_request import request_from
from tokenline.server.messages.bodies import (
    CountBody,
    MessageItem,
    MessagesBody,
    TextBlock,
    ThinkingBlock,
    ToolChoice,
    ToolResultBlock,
    ToolUseBlock,
)
from tokenline.server.parsing import renamed

# Anthropic's names for what a request calls otherwise.
_NAMES = (
    (re.compile(r"(tools\[\d+\])\.function\.parameters"), r"\1.input_schema"),
    (re.compile(r"(tools\[\d+\])\.function"), r"\1"),
    (re.compile(r"\bstop\b"), "stop_sequences"),
    (re.compile(r"\bjson_schema\b"), "output_config.format.schema"),
)


def messages_requests(body: MessagesBody, defaults: Mapping[str, Any]) -> list[Request]:
    """The one request."""
    fields = {
        "max_tokens": body.max_tokens,
        "stop": tuple(body.stop_sequences or ()),
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
    }
    return [request_from({**prompt_fields(body), **fields}, defaults)]


def prompt_fields(body: CountBody) -> dict[str, Any]:
    """The fields that decide the prompt, and what its answer may be."""
    require(bool(body.messages), "messages", "there are no messages", "send at least one")
    last = len(body.messages) - 1
    require(body.messages[last].role == "user", f"messages[{last}].role",
            "the conversation ends with the assistant", "end with a user's message: an answer is not continued here"
            )  # fmt: skip
    conversation = Conversation()
    if body.system is not None:
        conversation.say("system", text_of(body.system))
    for index, message in enumerate(body.messages):
        _add(conversation, message, f"messages[{index}]")
    fields: dict[str, Any] = {"messages": tuple(conversation.turns)}
    if body.thinking is not None and body.thinking.type == "disabled":
        # What templates that can be told so ask for.
        fields["chat_template_kwargs"] = {"enable_thinking": False}
    if body.output_config is not None and body.output_config.format is not None:
        fields["json_schema"] = body.output_config.format.schema
    if body.tools:
        fields["tools"] = tuple(
            function_tool(tool.name, tool.description, tool.input_schema, tool.strict) for tool in body.tools
        )
    if body.tool_choice is not None:
        fields |= _choice(body.tool_choice)
    return fields


def messages_spelled(error: RequestError, _: CountBody) -> RequestError:
    """An error of a request under the names of this API."""
    return renamed(error, _NAMES)


def _choice(choice: ToolChoice) -> dict[str, Any]:
    named = choice.type == "tool"
    require(named == (choice.name is not None), "tool_choice.name",
            "tool_choice names no tool" if named else f"tool_choice is {choice.type} and names a tool",
            "give a name with the type tool, and with no other")  # fmt: skip
    fields: dict[str, Any] = {"tool_choice": "required" if choice.type == "any" else choice.type}
    if choice.name is not None:
        fields["tool_choice"] = named_choice(choice.name)
    if choice.disable_parallel_tool_use:
        fields["parallel_tool_calls"] = False
    return fields


def _add(conversation: Conversation, message: MessageItem, path: str) -> None:
    """One message; consecutive ones of a role are one turn, as the API has it."""
    blocks = message.content
    if isinstance(blocks, str):
        conversation.say(message.role, blocks, joined=True)
        return
    require(bool(blocks), f"{path}.content", "a message has no content", "give it at least one block")
    for number, block in enumerate(blocks):
        place = f"{path}.content[{number}]"
        match block:
            case TextBlock():
                conversation.say(message.role, block.text, joined=True)
            case ThinkingBlock():
                _of("assistant", message, place)
                conversation.think(block.thinking)
            case ToolUseBlock():
                _of("assistant", message, place)
                conversation.call(block.id, block.name, block.input)
            case ToolResultBlock():
                _of("user", message, place)
                conversation.answer(block.tool_use_id, text_of(block.content), f"{place}.tool_use_id")


def _of(role: str, message: MessageItem, place: str) -> None:
    require(message.role == role, f"{place}.type", f"a block of this type in the {message.role}'s message",
            f"it belongs to the {role}'s")  # fmt: skip
