"""One call of a tool, read from a text that arrives in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenline.text.json_span import JsonSpan
from tokenline.text.tool_format import ToolFormat, call_of


@dataclass(frozen=True)
class Read:
    """What has been read since the last time: the function's name, once; a piece of its arguments; how much of the text
    is used up. `done`: the call is whole. `failed`: this is no call, and none of it was."""

    name: str | None = None
    arguments: str = ""
    used: int = 0
    done: bool = False
    failed: bool = False


class CallReader(Protocol):
    def read(self, text: str, final: bool) -> Read:
        """Go on in `text`: all that came after the call's opening and is not used up."""
        ...


class WholeCall:
    """Reads a call that may turn out to be none: it is told when it is whole, and is what it should be."""

    def __init__(self, format: ToolFormat, names: Sequence[str]) -> None:
        self._format, self._names = format, names
        self._span = JsonSpan()
        self._seen = 0
        self._end: int | None = None

    def read(self, text: str, final: bool) -> Read:
        if self._end is None:
            start = len(text) - len(text.lstrip())
            if start == len(text):
                return Read(failed=final)
            if text[start] != "{":
                return Read(failed=True)
            try:
                self._end = self._span.feed(text, self._seen)
            except ValueError:
                return Read(failed=True)
            self._seen = len(text)
            if self._end is None:
                return Read(failed=final)
        call = call_of(text[: self._end], self._format, self._names)
        rest = text[self._end :]
        closing = rest.lstrip()
        if call is None or not (
            closing.startswith(self._format.closing) or _begins(self._format.closing, closing)
        ):
            return Read(failed=True)
        if not closing.startswith(self._format.closing):
            if not final:
                return Read()
            # The model ended its turn without the mark; the call is whole all the same.
            return Read(call.name, call.arguments, len(text), done=True)
        used = self._end + (
            len(rest) - len(closing) + len(self._format.closing) if self._format.closing else 0
        )
        return Read(call.name, call.arguments, used, done=True)


class AssuredCall:
    """Reads a call that a grammar makes sure of: its arguments are handed on as they come. One that is cut off before
    its arguments begin was none; one that is cut off later stays as far as it got."""

    def __init__(self, format: ToolFormat) -> None:
        self._format = format
        self._head = re.compile(
            rf'\s*{re.escape(format.lead.strip())} ?("[A-Za-z0-9_-]+"), "{format.arguments}": ', re.ASCII
        )
        self._span: JsonSpan | None = None
        self._whole = False

    def read(self, text: str, final: bool) -> Read:
        name, arguments, used = None, "", 0
        if self._span is None:
            head = self._head.match(text)
            if head is None:
                return Read(failed=final)
            name, used = json.loads(head[1]), head.end()
            self._span = JsonSpan()
        if not self._whole:
            end = self._span.feed(text, used)
            self._whole = end is not None
            arguments = text[used:end]
            used += len(arguments)
        tail = text[used : used + len(self._format.tail)]
        if self._whole and tail == self._format.tail:
            return Read(name, arguments, used + len(tail), done=True)
        return Read(name, arguments, len(text) if final else used)


def _begins(mark: str, text: str) -> bool:
    return mark.startswith(text)
