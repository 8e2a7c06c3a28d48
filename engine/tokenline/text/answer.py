"""An assistant's text, taken apart as it arrives: what it thought, what it said, which tools it called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tokenline.text.call_reader import AssuredCall, CallReader, WholeCall
from tokenline.text.tool_format import ToolFormat

THINK, END_THINK = "<think>", "</think>"

Delta = dict[str, Any]


@dataclass(frozen=True)
class Tools:
    """What may be called: the functions' names, how the template writes a call, whether a grammar makes sure that a
    call is one, and the id of the call with an index."""

    format: ToolFormat
    names: tuple[str, ...]
    assured: bool
    id_of: Callable[[int], str]

    def reader(self) -> CallReader:
        return AssuredCall(self.format) if self.assured else WholeCall(self.format, self.names)


class Answer:
    """Every cut of one text gives the same message, and the deltas, joined, are it.

    `reasoning`: "open" where the prompt ends inside the thoughts, "possible" where the text may begin with them. Space
    around thoughts and calls belongs to neither. What looks like a call and is none is content, as it stands.
    """

    def __init__(
        self, reasoning: Literal["none", "possible", "open"] = "none", tools: Tools | None = None
    ) -> None:
        self._tools = tools
        self._buffer = ""
        self._state = {"none": "content", "possible": "start", "open": "thoughts"}[reasoning]
        self._skip_space = reasoning == "open"
        self._bare = tools is not None and not tools.format.opening
        self._lead = ""  # what stands before the call that is being read, should it be none
        self._reader: CallReader | None = None
        self._delta: Delta = {}
        self.content = self.reasoning = ""
        self.calls: list[dict[str, Any]] = []

    @property
    def message(self) -> dict[str, Any]:
        """OpenAI's message, so far; no content but calls is null."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["content"] = self.content or None
            message["tool_calls"] = [{**call, "function": dict(call["function"])} for call in self.calls]
        return message

    def push(self, text: str) -> Delta:
        """What the text adds, in the shape of OpenAI's delta; {} for nothing yet."""
        return self._go_on(text, final=False)

    def finish(self, text: str = "") -> Delta:
        """The same for the last of the text, and what was held back."""
        return self._go_on(text, final=True)

    def _go_on(self, text: str, final: bool) -> Delta:
        self._buffer += text
        self._delta = {}
        while self._read(final):
            continue
        return self._delta

    def _read(self, final: bool) -> bool:
        """Read from the buffer what the state can; whether there is more to read, in another state."""
        match self._state:
            case "start":
                return self._read_start(final)
            case "thoughts":
                return self._read_thoughts(final)
            case "call":
                return self._read_call(final)
            case _:
                return self._read_content(final)

    def _read_start(self, final: bool) -> bool:
        text = self._buffer.lstrip()
        if text.startswith(THINK):
            self._buffer = text[len(THINK) :]
            self._state, self._skip_space = "thoughts", True
            return True
        if THINK.startswith(text) and not final:
            return False
        self._state = "content"
        return True

    def _read_thoughts(self, final: bool) -> bool:
        self._drop_space()
        before, found, after = self._until(END_THINK, final)
        if not found and not final:
            # The space before an end belongs to it.
            after = before[len(before.rstrip()) :] + after
        self._add("reasoning_content", before.rstrip())
        self._buffer = after
        if found:
            self._state, self._skip_space = "content", True
        return found

    def _read_content(self, final: bool) -> bool:
        self._drop_space()
        if self._tools is None or not self._buffer:
            self._say(self._buffer)
            self._buffer = ""
            return False
        if self._bare:
            return self._read_bare_content(final)
        before, found, after = self._until(self._tools.format.opening, final)
        kept = before.rstrip()
        if found:
            self._say(kept)
            self._lead = before[len(kept) :] + self._tools.format.opening
            self._buffer = after
            self._state, self._reader = "call", self._tools.reader()
            return True
        if final:
            kept = before
        self._say(kept)
        self._buffer = before[len(kept) :] + after
        return False

    def _read_bare_content(self, final: bool) -> bool:
        """A call where the answer, or what follows another call, begins with a brace; else text to its end."""
        assert self._tools is not None
        text = self._buffer.lstrip()
        between = self._tools.format.between.strip()
        if not self.content and self.calls and between and text.startswith(between):
            text = text[len(between) :].lstrip()
        if not self.content and not text and not final:
            return False
        if not self.content and text.startswith("{"):
            self._lead = self._buffer[: len(self._buffer) - len(text)]
            self._buffer = text
            self._state, self._reader = "call", self._tools.reader()
            return True
        self._say(self._buffer)
        self._buffer = ""
        return False

    def _read_call(self, final: bool) -> bool:
        assert self._tools is not None
        assert self._reader is not None
        read = self._reader.read(self._buffer, final)
        if read.failed:
            self._say(self._lead)
            if self._bare:
                self._say(self._buffer)
                self._buffer = ""
            self._state = "content"
            return True
        if read.name is not None:
            self._call(read.name)
        if read.arguments:
            self._argue(read.arguments)
        self._buffer = self._buffer[read.used :]
        if read.done:
            self._state, self._skip_space = "content", True
        return read.done

    def _until(self, mark: str, final: bool) -> tuple[str, bool, str]:
        """(text before the mark, whether it is there, text after it); what may be its start counts as after it."""
        before, found, after = self._buffer.partition(mark)
        if found or final:
            return before, bool(found), after
        held = next(
            length
            for length in range(min(len(mark) - 1, len(before)), -1, -1)
            if before.endswith(mark[:length])
        )
        cut = len(before) - held
        return before[:cut], False, before[cut:]

    def _drop_space(self) -> None:
        if self._skip_space:
            self._buffer = self._buffer.lstrip()
            self._skip_space = not self._buffer

    def _say(self, text: str) -> None:
        self._add("content", text)

    def _add(self, field: str, text: str) -> None:
        if not text:
            return
        self._delta[field] = self._delta.get(field, "") + text
        if field == "content":
            self.content += text
        else:
            self.reasoning += text

    def _call(self, name: str) -> None:
        assert self._tools is not None
        index = len(self.calls)
        call: dict[str, Any] = {
            "id": self._tools.id_of(index),
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        self.calls.append(call)
        told = {"index": index, **call, "function": dict(call["function"])}
        self._delta.setdefault("tool_calls", []).append(told)

    def _argue(self, arguments: str) -> None:
        index = len(self.calls) - 1
        self.calls[index]["function"]["arguments"] += arguments
        told = self._delta.setdefault("tool_calls", [])
        if told and told[-1]["index"] == index:
            told[-1]["function"]["arguments"] += arguments
        else:
            told.append({"index": index, "function": {"arguments": arguments}})
