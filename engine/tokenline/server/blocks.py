"""An assistant's answer as blocks in their order: what it thought, what it said, each call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Kind = Literal["thinking", "text", "call"]


@dataclass
class Block:
    """`text` is the thought, the words, or the call's arguments as JSON text; `id` and `name` are a call's."""

    kind: Kind
    index: int
    id: str = ""
    name: str = ""
    text: str = ""


class Step(NamedTuple):
    """A block begins, grows by `text`, or ends."""

    what: Literal["open", "add", "close"]
    block: Block
    text: str = ""


class Blocks:
    """Taken from the deltas of a row's events: an answer sent whole and one sent as it comes have the same blocks."""

    def __init__(self) -> None:
        self.all: list[Block] = []
        self._open: Block | None = None

    def push(self, delta: dict[str, Any]) -> Iterator[Step]:
        """What one event's delta does, in the order in which it was read."""
        for field, value in delta.items():
            if field == "tool_calls":
                for call in value:
                    yield from self._call(call)
            else:
                yield from self._text("thinking" if field == "reasoning_content" else "text", value)

    def close(self) -> Iterator[Step]:
        """The end of the block that is open, where one is."""
        block, self._open = self._open, None
        if block is not None:
            yield Step("close", block)

    def _text(self, kind: Kind, text: str) -> Iterator[Step]:
        if self._open is None or self._open.kind != kind:
            yield from self._begin(Block(kind, len(self.all)))
        yield from self._grow(text)

    def _call(self, call: dict[str, Any]) -> Iterator[Step]:
        function = call["function"]
        if "id" in call:
            yield from self._begin(Block("call", len(self.all), call["id"], function["name"]))
        yield from self._grow(function.get("arguments", ""))

    def _begin(self, block: Block) -> Iterator[Step]:
        yield from self.close()
        self.all.append(block)
        self._open = block
        yield Step("open", block)

    def _grow(self, text: str) -> Iterator[Step]:
        if text and self._open is not None:
            self._open.text += text
            yield Step("add", self._open, text)
