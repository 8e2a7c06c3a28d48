"""The bound on indentation, against its definition and for every cut of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenline.text.indent import IndentBound


def whole(text: str, least: int) -> tuple[str, bool]:
    return IndentBound(least).push(text)


@pytest.mark.parametrize(
    ("text", "least", "kept"),
    [
        ("return 1\n    x = 2\nprint()", 4, "return 1\n    x = 2\n"),
        ("return 1\n    x = 2\n   y", 4, "return 1\n    x = 2\n   "),
        ("a\n\n\n    b\n\t\t\t\tc", 4, "a\n\n\n    b\n\t\t\t\tc"),
        ("a\n  b", 2, "a\n  b"),
        ("a\nb", 1, "a\n"),
        ("a\nb", 0, "a\nb"),
        ("no line at all", 8, "no line at all"),
        ("\nb", 1, "\n"),
    ],
)
def test_what_is_kept(text: str, least: int, kept: str) -> None:
    assert whole(text, least) == (kept, kept != text)


@given(st.text("ab \t\n", max_size=40), st.integers(0, 4), st.lists(st.integers(1, 9), max_size=40))
def test_no_cut_changes_what_is_kept(text: str, least: int, lengths: list[int]) -> None:
    kept, stopped = whole(text, least)
    bound, rest, joined = IndentBound(least), text, ""
    for length in (*lengths, len(text)):
        piece, rest = rest[:length], rest[length:]
        joined += bound.push(piece)[0]
    assert (joined, bound.stopped) == (kept, stopped)
    # Every line that was let through, the first excepted, is indented enough or holds nothing but its indentation.
    for line in kept.split("\n")[1:]:
        indent = len(line) - len(line.lstrip(" \t"))
        assert indent >= least or indent == len(line)
    assert stopped or kept == text
