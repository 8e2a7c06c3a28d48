"""How a chat template has its model write a call of a tool."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class ToolFormat:
    """A call is `opening`, an object with "name" and the key `arguments`, `closing`. Both marks are empty where a call
    is all that an answer is."""

    opening: str
    closing: str
    arguments: str
    between: str

    @property
    def lead(self) -> str:
        """What a constrained call writes before its function's name."""
        return ("\n" if self.opening else "") + '{"name": '

    @property
    def tail(self) -> str:
        """And after its arguments."""
        return "}" + ("\n" + self.closing if self.closing else "")


TAGGED = ToolFormat("<tool_call>", "</tool_call>", "arguments", "\n")
BARE = ToolFormat("", "", "parameters", "; ")


def format_of(template: str) -> ToolFormat | None:
    """By what the template tells its model: `<tool_call>` around an object (Hermes, Qwen 2.5 and 3, SmolLM3), or an
    object with "name" and "parameters" as the answer (Llama 3). None where it is neither."""
    if TAGGED.opening in template:
        return None if "<function=" in template else TAGGED
    return BARE if '"parameters":' in template else None


@dataclass(frozen=True)
class Function:
    """One tool: its name and the JSON schema of its arguments; `strict` holds the model to the schema."""

    name: str
    parameters: Mapping[str, Any]
    strict: bool

    @classmethod
    def of(cls, tool: Mapping[str, Any]) -> Self:
        """From OpenAI's shape, already validated."""
        function = tool["function"]
        parameters = {"type": "object", **(function.get("parameters") or {})}
        return cls(function["name"], parameters, bool(function.get("strict")))


@dataclass(frozen=True)
class Call:
    """A call that a model has written, `arguments` as it wrote them: a JSON object."""

    name: str
    arguments: str


def call_of(text: str, format: ToolFormat, names: Sequence[str]) -> Call | None:
    """The call that the object `text` is; None where it is none of these functions', or no JSON."""
    try:
        members = object_members(text)
        name = json.loads(members["name"])
        arguments = members[format.arguments]
    except (ValueError, KeyError, RecursionError):
        return None
    known = isinstance(name, str) and name in names
    return Call(name, arguments) if known and arguments.startswith("{") else None


def object_members(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as it is written; ValueError for text that is no object."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    if not isinstance(decoder.decode(text), dict):
        raise ValueError("the text is no object")
    members: dict[str, str] = {}
    position = _after(text, 0, "{")
    while text[position] != "}":
        key, position = decoder.raw_decode(text, position)
        start = _after(text, position, ":")
        _, end = decoder.raw_decode(text, start)
        members[key] = text[start:end]
        position = _space(text, end)
        if text[position] == ",":
            position = _after(text, position, ",")
    return members


def _after(text: str, position: int, mark: str) -> int:
    """Where the next thing begins after the mark, which is known to be there."""
    return _space(text, text.index(mark, position) + 1)


def _space(text: str, position: int) -> int:
    while text[position].isspace():
        position += 1
    return position


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def conversation(messages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], str | None]:
    """Messages as templates expect them: arguments of earlier calls as objects, where OpenAI's API has them as JSON
    text. And the path of the first that cannot be read, None where all can."""
    read: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        calls = []
        for number, call in enumerate(message.get("tool_calls") or ()):
            path = f"messages[{index}].tool_calls[{number}]"
            function = call.get("function", call) if isinstance(call, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                return [], path
            arguments = function.get("arguments", {})
            if isinstance(arguments, str):
                try:
                    arguments = json.loads(arguments or "{}")
                except ValueError:
                    return [], f"{path}.function.arguments"
            if not isinstance(arguments, dict):
                return [], f"{path}.function.arguments"
            # In one order, whatever the client's: templates write the object as it stands.
            whole = {"name": function["name"], **function, "arguments": arguments}
            whole["arguments"] = whole.pop("arguments")
            calls.append({**call, "function": whole} if "function" in call else whole)
        read.append({**message, "tool_calls": calls} if calls else message)
    return read, None
