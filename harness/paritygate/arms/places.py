"""The places in a command's words that are filled in, such as {prompt}."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_PLACE = re.compile(r"\{([a-z_]+)\}")


def refuse_misspelt(words: Iterable[str], places: Iterable[str]) -> None:
    """ValueError for a place that is nearly one of those that are known: it would reach the program as it stands.

    Braces around anything else are the program's own.
    """
    known = list(places)
    for word in words:
        for name in _PLACE.findall(word):
            meant = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
            if name not in known and meant:
                raise ValueError(
                    f"command has {{{name}}}, which nothing is filled in for: is {{{meant[0]}}} meant?"
                )
