"""Patterns that a policy or a catalogue spells: refused where they are read, not where they are first needed."""

from __future__ import annotations

import re


class NoAstGrep(Exception):
    """ast-grep's Python package is not installed: optional, because only rules about shapes need it."""


def check_expression(text: str, what: str) -> None:
    """Raises ValueError saying what is wrong with a regular expression, and where in it."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{what} {text!r} is no regular expression: {error}") from error


def lines_of_shape(text: str, language: str, structure: str) -> list[tuple[int, str]]:
    """Line, counted from 1, and text of each place that has the shape. Raises NoAstGrep; ValueError for no pattern."""
    try:
        from ast_grep_py import SgRoot
    except ImportError:
        raise NoAstGrep(
            "rules of kind absent-structure and only-structure-in need ast-grep: pip install 'paritygate[rules]'"
        ) from None
    try:
        found = SgRoot(text, language).root().find_all(pattern=structure)
    except (RuntimeError, ValueError, TypeError) as error:
        causes = re.findall(r"^\s+\d+: (.*)", str(error).partition("Stack backtrace")[0], re.MULTILINE)
        told = causes[-1] if causes else str(error)
        raise ValueError(f"{structure!r} is no ast-grep pattern of {language}: {told}") from error
    return [(node.range().start.line + 1, node.text()) for node in found]
