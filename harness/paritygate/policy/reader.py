"""Conversion of a policy's tables; an error names the line of the key at fault."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from paritygate.policy.toml_lines import Path as KeyPath
from paritygate.policy.toml_lines import line_of


def wrong_name(name: str) -> str:
    """Why a claim, an arm or a case may not be called so; "" where it may.

    A check's name is made of names with / between them: with one inside, two checks would have one name.
    """
    if name and "/" not in name and name == name.strip():
        return ""
    return f"the name {name!r}: use one without / that is not empty and has no spaces around it"


class PolicyError(Exception):
    """A policy that cannot be used; the message names file, line and key."""


_FIELD = re.compile(r"(?:unknown|required) field `([^`]+)`")
_AT = re.compile(r" - at `(key in )?\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_RANGE = re.compile(r"Expected `(?:int|float)` (<=|>=|<|>) (\S+)")
_KIND = re.compile(r"Expected `(int|float)(?: \| null)?`, got `\w+`")
_BOUNDS = {">": "above", ">=": "of at least", "<": "below", "<=": "of at most"}


def _at(value: Any, path: KeyPath) -> Any:
    """What stands at a path of a document; None where nothing does."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _needed(message: str, given: Any) -> str:
    """The conversion's complaint about a number, with the number and in words; any other as it is."""
    if isinstance(given, list) or given is None:
        return message
    if found := _RANGE.fullmatch(message):
        # The conversion does not say which value of a table it was.
        said = "a value of it is out of range" if isinstance(given, dict) else f"is {given}"
        return f"{said}: give a number {_BOUNDS[found.group(1)]} {float(found.group(2)):.12g}"
    if found := _KIND.fullmatch(message):
        shown = repr(given) if isinstance(given, str) else str(given).lower()
        return f"is {shown}: give a {'whole ' if found.group(1) == 'int' else ''}number"
    return message


def _not_finite(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, float]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path, value
    elif isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _not_finite(inner, (*path, step))


class Reader:
    """Converts the tables of one file, called `shown` in errors, which name the line of the key at fault.

    Raises PolicyError for a number that is not finite, wherever it stands.
    """

    def __init__(self, path: Path, text: str, document: dict[str, Any], *, shown: str = "") -> None:
        self.shown = shown or path.name
        self.text = text
        self.document = document
        for key, value in _not_finite(document, ()):
            raise self.error(key, f"is {value}: give a finite number")

    def error(self, key: KeyPath, what: str) -> PolicyError:
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")
        return PolicyError(f"{self.shown}:{line_of(self.text, key)}: {name}: {what}")

    def only_tables(self, name: str) -> None:
        """Refuse every key of the document but the array of tables of that name."""
        for key in self.document:
            if key != name:
                raise self.error((key,), f"unknown key: this file holds [[{name}]] tables")

    def take(self, key: KeyPath, value: Any, kind: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            message = str(error)
            inner: KeyPath = ()
            if at := _AT.search(message):
                inner = tuple(
                    int(i) if i else name for name, i in _STEP.findall(at.group(2).partition("[...]")[0])
                )
                message = message[: at.start()]
            if field := _FIELD.search(message):
                if "unknown" in message:
                    raise self.error(key + inner + (field.group(1),), "unknown key") from error
                raise self.error(key + inner, f"`{field.group(1)}` is missing") from error
            raise self.error(key + inner, _needed(message, _at(value, inner))) from error

    def table(self, name: str) -> dict[str, Any]:
        value = self.document.get(name, {})
        if not isinstance(value, dict):
            raise self.error((name,), "is not a table")
        return value

    def named(self, name: str, kind: Any) -> dict[str, Any]:
        return {key: self.take((name, key), value, kind) for key, value in self.table(name).items()}
