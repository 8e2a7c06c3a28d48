"""Conversion of a policy's tables; an error names the line of the key at fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from paritygate.policy.toml_lines import Path as KeyPath
from paritygate.policy.toml_lines import line_of


class PolicyError(Exception):
    """A policy that cannot be used; the message names file, line and key."""


_FIELD = re.compile(r"(?:unknown|required) field `([^`]+)`")
_AT = re.compile(r" - at `(key in )?\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class Reader:
    """Converts the tables of one file; an error names the line of the key at fault."""

    def __init__(self, path: Path, text: str, document: dict[str, Any]) -> None:
        self.path = path
        self.text = text
        self.document = document

    def error(self, key: KeyPath, what: str) -> PolicyError:
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")
        return PolicyError(f"{self.path.name}:{line_of(self.text, key)}: {name}: {what}")

    def take(self, key: KeyPath, value: Any, kind: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            message = str(error)
            inner: KeyPath = ()
            if at := _AT.search(message):
                inner = tuple(int(i) if i else name for name, i in _STEP.findall(at.group(2)))
                message = message[: at.start()]
            if field := _FIELD.search(message):
                if "unknown" in message:
                    raise self.error(key + inner + (field.group(1),), "unknown key") from error
                raise self.error(key + inner, f"`{field.group(1)}` is missing") from error
            raise self.error(key + inner, message) from error

    def table(self, name: str) -> dict[str, Any]:
        value = self.document.get(name, {})
        if not isinstance(value, dict):
            raise self.error((name,), "is not a table")
        return value

    def named(self, name: str, kind: Any) -> dict[str, Any]:
        return {key: self.take((name, key), value, kind) for key, value in self.table(name).items()}
