"""Globs over paths: `*` stays inside a folder, `**` crosses folders, a folder's name means all under it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=1024)
def _expression(glob: str) -> re.Pattern[str]:
    pattern = ""
    position = 0
    while position < len(glob):
        if glob.startswith("**/", position):
            pattern, position = pattern + "(?:.*/)?", position + 3
        elif glob.startswith("**", position):
            pattern, position = pattern + ".*", position + 2
        elif glob[position] == "*":
            pattern, position = pattern + "[^/]*", position + 1
        else:
            pattern, position = pattern + re.escape(glob[position]), position + 1
    return re.compile(pattern)


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a path matches one of the globs; `decode/` matches every file under that folder."""
    return any(_expression(f"{glob}**" if glob.endswith("/") else glob).fullmatch(path) for glob in globs)
