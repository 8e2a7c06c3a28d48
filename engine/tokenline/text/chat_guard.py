"""Keeps what people wrote apart from what the chat template wrote, where special tokens are concerned."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from tokenline.errors import RequestError
from tokenline.text.tokenizer import Tokenizer

PRIVATE_USE = range(0xE000, 0xF900)


class ChatGuard:
    """Marks special tokens inside people's strings: after rendering they can be told from the template's own.

    The mark is one private-use character that occurs nowhere in the conversation, put after the first letter
    of every special token's name, and of every start of one at a string's end, which the next string could
    complete. Strings without any are left as they are, and then nothing here changes what is encoded.
    """

    def __init__(self, tokenizer: Tokenizer, template: str, values: Any) -> None:
        self._tokenizer = tokenizer
        names = sorted(
            (name for name in tokenizer.special_tokens.values() if len(name) > 1), key=len, reverse=True
        )
        self._names = re.compile("(?=(?:" + "|".join(map(re.escape, names)) + "))") if names else None
        self._starts = {name[:length] for name in names for length in range(1, len(name))}
        strings = list(_strings(values))
        self._check(strings)
        used = set(template).union(*map(set, strings))
        mark = next((mark for mark in map(chr, PRIVATE_USE) if mark not in used), None)
        if mark is None:
            raise RequestError(
                "the messages use every private-use character of Unicode",
                "leave one unused",
                param="messages",
            )
        self._mark = mark

    def marked(self, value: Any) -> Any:
        """`value` with every string in it marked: message text, roles, names, arguments of tool calls."""
        match value:
            case str():
                return self._marked_text(value)
            case dict():
                return {self.marked(key): self.marked(item) for key, item in value.items()}
            case list() | tuple():
                return [self.marked(item) for item in value]
            case _:
                return value

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text: unmarked special tokens are tokens, marked ones are text, marks are gone."""
        if self._mark not in text:
            return self._tokenizer.encode(text, parse_special=True, add_bos=False)
        ids: list[int] = []
        position = 0
        for start, end, token_id in self._tokenizer.special_spans(text):
            ids += self._plain(text[position:start])
            ids.append(token_id)
            position = end
        return ids + self._plain(text[position:])

    def unmarked(self, text: str) -> str:
        """The text without the marks."""
        return text.replace(self._mark, "")

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(self.unmarked(text), add_bos=False) if text else []

    def _marked_text(self, text: str) -> str:
        if self._names is None:
            return text
        places = {found.start() + 1 for found in self._names.finditer(text)}
        longest = max(map(len, self._starts))
        places |= {
            len(text) - length + 1
            for length in range(1, min(longest, len(text)) + 1)
            if text[len(text) - length :] in self._starts
        }
        if not places:
            return text
        cuts = [0, *sorted(places), len(text)]
        return self._mark.join(text[start:end] for start, end in itertools.pairwise(cuts))

    def _check(self, strings: list[str]) -> None:
        for text in strings:
            try:
                text.encode()
            except UnicodeEncodeError:
                raise RequestError(
                    "a message has half a character (a lone surrogate)",
                    "send valid Unicode",
                    param="messages",
                ) from None


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield from _strings(key)
                yield from _strings(item)
        case list() | tuple():
            for item in value:
                yield from _strings(item)
