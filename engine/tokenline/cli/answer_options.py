"""Options that say what an answer must be, and which tools may be called."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tokenline.cli.input import reading
from tokenline.errors import RequestError

ANSWER = "Answer"


class ReasoningFormat(StrEnum):
    auto = "auto"
    none = "none"


def _answer(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=ANSWER)


@dataclass(frozen=True, kw_only=True)
class ConstraintOptions:
    """One of these at most; the grammar is checked where every request is."""

    json_object: Annotated[bool, _answer("--json-object", help="The answer is a JSON object.")] = False
    json_schema: Annotated[
        str | None, _answer("--json-schema", help="The answer is JSON of this schema; @FILE reads it.")
    ] = None
    regex: Annotated[str | None, _answer("--regex", help="The answer matches this.")] = None
    choice: Annotated[list[str], _answer("--choice", help="The answer is one of these; repeat for more.")] = (
        field(default_factory=list)
    )
    grammar: Annotated[
        str | None, _answer("--grammar", help="The answer is of this Lark grammar; @FILE reads it.")
    ] = None

    def fields(self) -> dict[str, Any]:
        """As the request's fields."""
        given: dict[str, Any] = {}
        if self.json_object:
            given["json_object"] = True
        if self.json_schema is not None:
            given["json_schema"] = _json("--json-schema", self.json_schema, "json_schema", dict)
        if self.regex is not None:
            given["regex"] = self.regex
        if self.choice:
            given["choice"] = tuple(self.choice)
        if self.grammar is not None:
            given["grammar"] = _text(self.grammar, "grammar")
        return given


@dataclass(frozen=True, kw_only=True)
class ToolOptions:
    """What a conversation has beside its messages."""

    tools: Annotated[
        str | None, _answer("--tools", help="JSON list of functions, as OpenAI spells them; @FILE reads it.")
    ] = None
    tool_choice: Annotated[
        str, _answer("--tool-choice", help="auto, none, required, or the name of a function.")
    ] = "auto"
    parallel_tool_calls: Annotated[
        bool, _answer("--parallel-tool-calls/--no-parallel-tool-calls", help="Several calls, or one.")
    ] = True
    reasoning_format: Annotated[
        ReasoningFormat, _answer("--reasoning-format", help="Tell thoughts from the answer, or not.")
    ] = ReasoningFormat.auto

    def fields(self) -> dict[str, Any]:
        """As the request's fields."""
        given: dict[str, Any] = {
            "parallel_tool_calls": self.parallel_tool_calls,
            "reasoning_format": self.reasoning_format.value,
            "tool_choice": self.tool_choice,
        }
        if self.tool_choice not in ("auto", "none", "required"):
            given["tool_choice"] = {"type": "function", "function": {"name": self.tool_choice}}
        if self.tools is not None:
            given["tools"] = tuple(_json("--tools", self.tools, "tools", list))
        return given


def _json(option: str, given: str, param: str, kind: type) -> Any:
    text = _text(given, param)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{option} is not JSON ({error})", "check its quotes", param=param) from None
    if not isinstance(value, kind):
        what = "an object" if kind is dict else "a list"
        raise RequestError(f"{option} is not {what}", f"give {what}", param=param)
    return value


def _text(given: str, param: str) -> str:
    """The text, or the file's that it names."""
    if not given.startswith("@"):
        return given
    path = Path(given[1:])
    with reading(path, param):
        return path.read_text(encoding="utf-8")
