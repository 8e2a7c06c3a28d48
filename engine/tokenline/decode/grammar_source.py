"""What a request wants its text to be, written as one grammar for llguidance."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenline.request import Request
from tokenline.text.answer import END_THINK, THINK
from tokenline.text.tool_format import Function, ToolFormat

# Between the parts of a JSON text: nothing, a space, or line ends with an indentation. Where any space may stand, a
# model can write nothing else until its tokens run out.
WHITESPACE = r"( |\n{1,2}[ \t]{0,20})?"
ANYTHING = "/(?s:.+)/"

# How a mark is written in Lark: as text, or as the special token that it is.
Mark = Callable[[str], str]


def source_of(*grammars: Mapping[str, Any]) -> str:
    """llguidance's JSON for these grammars, the first of which is the start."""
    return json.dumps({"grammars": grammars}, ensure_ascii=False)


def schema_grammar(schema: Mapping[str, Any], *, lenient: bool = False) -> dict[str, Any]:
    """A JSON schema; `lenient` leaves out the keywords that llguidance does not know, which are errors otherwise."""
    return {"json_schema": _with_options(schema, lenient)}


def constraint_grammar(request: Request) -> dict[str, Any] | None:
    """What the request wants its answer to be, None for any text."""
    match request.constraint:
        case "json_object":
            return schema_grammar({"type": "object"})
        case "json_schema":
            return schema_grammar(request.json_schema or {})
        case "regex":
            return {"lark_grammar": f"start: {_expression(request.regex or '')}"}
        case "choice":
            return {"lark_grammar": "start: " + " | ".join(map(quoted, request.choice or ()))}
        case "grammar":
            return {"lark_grammar": request.grammar}
    return None


@dataclass(frozen=True)
class CallRules:
    """Calls of these functions; `free`: or any text, with calls in it or without."""

    format: ToolFormat
    functions: Sequence[Function]
    parallel: bool
    free: bool = False


def whole_source(answer: Mapping[str, Any] | None, calls: CallRules | None, thinks: str, mark: Mark) -> str:
    """The grammar of a whole text: the answer, or calls; before either of them thoughts, if `thinks` says that the text
    may begin with them ("possible") or begins inside them ("open")."""
    if calls is None and thinks == "none" and answer is not None:
        return source_of(answer)
    parts = ["@answer"] if answer is not None else []
    rules: list[str] = []
    if calls is not None:
        parts.append("free" if calls.free else "calls")
        rules += _call_rules(calls, mark)
    before, unclosed = "", ""
    if thinks != "none":
        rules.append(_up_to("thoughts", END_THINK, mark))
        before = "thoughts SPACE? " if thinks == "open" else f"({mark(THINK)} thoughts SPACE?)? "
        rules.append(r"SPACE: /\s+/")
        if calls is not None and calls.free:
            # Whoever may say anything may also never finish a thought.
            unclosed = f" | {mark(THINK) if thinks == 'possible' else ''} THOUGHT?"
            rules.append(_without("THOUGHT", END_THINK))
    start = {"lark_grammar": "\n".join([f"start: {before}({' | '.join(parts)}){unclosed}", *rules])}
    return source_of(start, *([] if answer is None else [{"name": "answer", **answer}]))


def _call_rules(calls: CallRules, mark: Mark) -> list[str]:
    format = calls.format
    opening = f"{mark(format.opening)} " if format.opening else ""
    closing = f'"}}\\n" {mark(format.closing)}' if format.closing else '"}"'
    names = " | ".join(f"call_{index}" for index in range(len(calls.functions)))
    more = f" ({quoted(format.between)} {opening}call)*" if calls.parallel else ""
    rules = [f"calls: {opening}call{more}", f"call: {quoted(format.lead)} ({names}) {closing}"]
    for index, function in enumerate(calls.functions):
        head = quoted(f'{json.dumps(function.name)}, "{format.arguments}": ')
        schema = _with_options(function.parameters, not function.strict)
        rules.append(f"call_{index}: {head} arguments_{index}")
        rules.append(f"arguments_{index}: %json {json.dumps(schema)}")
    if not calls.free:
        return rules
    if not format.opening:
        # A text that begins with a brace is a call.
        return [*rules, "free: (calls | OTHER)?", r"OTHER: /\s*[^\s{](?s:.*)/"]
    rules.append(_up_to("lead", format.opening, mark))
    rules.append(f"free: (lead call){'*' if calls.parallel else '?'} TEXT?")
    rules.append(_without("TEXT", format.opening))
    return rules


def _without(terminal: str, mark: str) -> str:
    """A terminal for any text that the mark does not stand in."""
    return f"{terminal}: {ANYTHING} & ~/(?s:.*{_expression(re.escape(mark))[1:-1]}.*)/"


def _up_to(rule: str, end: str, mark: Mark) -> str:
    """A rule for any text up to and with the mark, where it first stands."""
    if mark(end) != quoted(end):
        return f"{rule}: {ANYTHING}? {mark(end)}"
    return f"{rule}[suffix={quoted(end)}]: /(?s:.*)/"


def _with_options(schema: Mapping[str, Any], lenient: bool) -> dict[str, Any]:
    own = schema.get("x-guidance")
    options = {"whitespace_pattern": WHITESPACE, "lenient": lenient, **(own if isinstance(own, dict) else {})}
    return {**schema, "x-guidance": options}


def quoted(text: str) -> str:
    """A text as Lark writes it, which is as JSON does."""
    return json.dumps(text, ensure_ascii=False)


def _expression(regex: str) -> str:
    """Between slashes, with the slashes and line ends in it escaped."""
    escaped = re.sub(r"(?s)(\\.)|/", lambda found: found[1] or r"\/", regex)
    return f"/{escaped}/".replace("\n", "\\n")
