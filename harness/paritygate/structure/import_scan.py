"""The imports of a module: read off its lines where they stand alone, else out of its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from paritygate.structure.names import dotted, imported
from paritygate.structure.source import Module

# Words that make an import more than a line: then the tree is asked.
SPECIAL = ("TYPE_CHECKING", "import_module", "__import__")
BY_STRING = {"importlib.import_module", "import_module", "__import__"}

# Strings and comments are stepped over, so that what is found outside them is the keyword.
_TOKENS = re.compile(
    r'"""(?:[^\\]|\\.)*?"""'
    r"|'''(?:[^\\]|\\.)*?'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'"
    r"|#[^\n]*"
    r"|(?P<keyword>\bimport\b)",
    re.DOTALL,
)
_STATEMENT = re.compile(r"^[ \t]*(?:from[ \t]+[\w.]+[ \t]+)?(?P<keyword>import)\b", re.MULTILINE)


@dataclass(frozen=True)
class Imported:
    """One imported name, dotted; `typing_only` where it stands under TYPE_CHECKING."""

    name: str
    line: int
    typing_only: bool = False


def imports_in(module: Module) -> list[Imported]:
    """Every import of a module, inside functions and by constant string too. Raises SourceError."""
    if not any(word in module.text for word in SPECIAL):
        try:
            return list(_of_lines(module))
        except _NotPlain:
            pass
    return list(_of_tree(module))


class _NotPlain(Exception):
    """An import that is not a statement at the beginning of a line."""


def _of_lines(module: Module) -> Iterator[Imported]:
    text = module.text
    found = {match.start("keyword") for match in _TOKENS.finditer(text) if match["keyword"]}
    at_line_starts = {match.start("keyword") for match in _STATEMENT.finditer(text)}
    if found != at_line_starts:
        raise _NotPlain
    read, line, counted = 0, 1, 0
    for keyword in sorted(found):
        start = text.rfind("\n", 0, keyword) + 1
        if keyword < read:
            raise _NotPlain
        read = _end(text, keyword)
        line, counted = line + text.count("\n", counted, start), start
        try:
            statements = ast.parse(text[start:read].strip()).body
        except SyntaxError:
            raise _NotPlain from None
        for statement in statements:
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                raise _NotPlain
            for name in _names(statement, module):
                yield Imported(name, line + statement.lineno - 1)


def _end(text: str, keyword: int) -> int:
    """Where the logical line ends."""
    rest = keyword + len("import")
    while rest < len(text) and text[rest] in " \t":
        rest += 1
    if text[rest : rest + 1] == "(":
        rest = text.find(")", rest)
        if rest < 0:
            raise _NotPlain
    end = text.find("\n", rest)
    while end > 0 and text[end - 1] == "\\":
        end = text.find("\n", end + 1)
    return len(text) if end < 0 else end


def _of_tree(module: Module) -> Iterator[Imported]:
    typing_only = {
        inner
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and (dotted(node.test) or "").endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(module.tree):
        for name in _names(node, module):
            yield Imported(name, getattr(node, "lineno", 0), node in typing_only)


def _names(node: ast.AST, module: Module) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (target for _, target in imported(node, module))
    elif isinstance(node, ast.Call) and dotted(node.func) in BY_STRING:
        yield from (str(item.value) for item in node.args[:1] if isinstance(item, ast.Constant))
