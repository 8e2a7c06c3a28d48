"""A conversation as chat templates expect it, built from whatever items an API words it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from tokenline.errors import RequestError

Turn = dict[str, Any]


class TextPart(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class HasText(Protocol):
    text: str


def text_of(content: str | Sequence[HasText] | None) -> str:
    """A message's text in one piece, its parts on lines of their own."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content)


def turn(role: str, content: str, **fields: Any) -> Turn:
    """One message, absent fields absent: templates ask whether a field is there."""
    present = {name: value for name, value in fields.items() if value is not None}
    return {"role": role, "content": content, **present}


def function_tool(
    name: str, description: str | None, parameters: Mapping[str, Any] | None, strict: bool | None
) -> dict[str, Any]:
    """A tool in the shape that requests have it in, which is that of OpenAI's chat."""
    fields = {"description": description, "parameters": parameters, "strict": strict}
    present = {key: value for key, value in fields.items() if value is not None}
    return {"type": "function", "function": {"name": name, **present}}


def named_choice(name: str) -> dict[str, Any]:
    """The `tool_choice` that names one function."""
    return {"type": "function", "function": {"name": name}}


class Conversation:
    """The turns so far. What an assistant thought, said and called in a row is one turn of its."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._called: dict[str, str] = {}

    def say(self, role: str, text: str, *, joined: bool = False) -> None:
        """A text; `joined` to the turn before where that is the same role's."""
        last = self.turns[-1] if self.turns else None
        opened = last is not None and role == "assistant" and not (last["content"] or "tool_calls" in last)
        if last is not None and last["role"] == role and (joined or opened):
            last["content"] = f"{last['content']}\n{text}" if last["content"] else text
        else:
            self.turns.append(turn(role, text))

    def think(self, text: str) -> None:
        """What the assistant thought before what it says next."""
        if self._assistant_is_open() and not self.turns[-1]["content"] and "tool_calls" not in self.turns[-1]:
            before = self.turns[-1].get("reasoning_content")
            self.turns[-1]["reasoning_content"] = text if before is None else f"{before}\n{text}"
        else:
            self.turns.append(turn("assistant", "", reasoning_content=text))

    def call(self, id: str, name: str, arguments: str | Mapping[str, Any]) -> None:
        """A call that the assistant made."""
        if not self._assistant_is_open():
            self.turns.append(turn("assistant", ""))
        self._called[id] = name
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        self.turns[-1].setdefault("tool_calls", []).append(call)

    def answer(self, id: str, text: str, param: str) -> None:
        """What a tool answered; RequestError, naming `param`, where nothing was called by that id."""
        if id not in self._called:
            raise RequestError(f"{param} {id!r} names no call before it", "send the call too", param=param)
        self.turns.append(turn("tool", text, tool_call_id=id, name=self._called[id]))

    def _assistant_is_open(self) -> bool:
        return bool(self.turns) and self.turns[-1]["role"] == "assistant"
