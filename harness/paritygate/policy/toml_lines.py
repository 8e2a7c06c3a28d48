"""Where each key of a TOML text stands, so that an error about a key can name its line."""

from __future__ import annotations

import re
from collections.abc import Iterator

Path = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)""")
_STRING = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*')


def _parts(dotted: str) -> Path:
    return tuple(a or b or c for a, b, c in _PART.findall(dotted))


def _open_after(text: str, opened: str) -> str:
    """What is still open after a line: a multi-line string's quotes, or the brackets of an array or inline table."""
    at = 0
    if opened in ('"""', "'''"):
        end = text.find(opened)
        if end < 0:
            return opened
        at, opened = end + 3, ""
    depth = opened
    while at < len(text):
        if found := _STRING.match(text, at):
            quotes = found.group()
            at = found.end()
            if quotes in ('"""', "'''"):
                end = text.find(quotes, at)
                if end < 0:
                    return quotes
                at = end + 3
            continue
        if text[at] in "[{":
            depth += text[at]
        elif text[at] in "]}":
            depth = depth[:-1]
        at += 1
    return depth


def _entries(text: str) -> Iterator[tuple[Path, int]]:
    counts: dict[Path, int] = {}
    table: Path = ()
    opened = ""
    for number, line in enumerate(text.splitlines(), 1):
        if opened:
            opened = _open_after(line, opened)
            continue
        if header := _HEADER.match(line):
            name = _parts(header.group(2))
            # A table below an array of tables belongs to the array's newest element.
            table = ()
            for part in name[:-1]:
                table += (part,)
                if table in counts:
                    table += (counts[table] - 1,)
            table += name[-1:]
            if header.group(1) == "[[":
                counts[table] = counts.get(table, 0) + 1
                table += (counts[table] - 1,)
            yield table, number
        elif key := _KEY.match(line):
            yield table + _parts(key.group(1)), number
            opened = _open_after(line[key.end() :], "")


def line_of(text: str, path: Path) -> int:
    """The line of a key or table; of the nearest table above it where the key is inside an inline value; else 1."""
    lines: dict[Path, int] = {}
    for entry, number in _entries(text):
        for length in range(1, len(entry) + 1):
            lines.setdefault(entry[:length], number)
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1
