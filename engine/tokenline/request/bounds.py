"""Refusals that name the field at fault and the mend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from tokenline.errors import RequestError

# The least and the greatest value, each with whether it is allowed itself, and the mend.
Range = tuple[float, bool, float, bool, str]


def require(ok: bool, param: str, what: str, mend: str) -> None:
    if not ok:
        raise RequestError(what, mend, param=param)


def require_ranges(struct: msgspec.Struct, ranges: dict[str, Range]) -> None:
    for name, (low, with_low, high, with_high, mend) in ranges.items():
        value = getattr(struct, name)
        if value is None:
            continue
        require(not math.isnan(value), name, f"{name} is not a number", "give a finite number")
        within = (low <= value if with_low else low < value) and (
            value <= high if with_high else value < high
        )
        span = f"{'[' if with_low else '('}{low}, {high}{']' if with_high else ')'}"
        require(within, name, f"{name} {value} is outside {span}", mend)


# Every token is held against each of these.
MOST_TEXTS, LONGEST_TEXT = 64, 1024


def require_texts(param: str, texts: Sequence[str]) -> None:
    """Strings that are looked for in an answer: none empty, not too many, none too long."""
    require(all(texts), param, f"a string of {param} is empty", "leave it out, or give it text")
    require(
        len(texts) <= MOST_TEXTS,
        param,
        f"{param} has {len(texts)} strings",
        f"give {MOST_TEXTS} at most",
    )
    longest = max(map(len, texts), default=0)
    require(
        longest <= LONGEST_TEXT,
        param,
        f"a string of {param} has {longest} characters",
        f"use {LONGEST_TEXT} at most",
    )


def require_tokens(param: str, tokens: Iterable[int], vocabulary_size: int | None) -> None:
    """Token ids within a vocabulary; of one that is not known yet only that none is negative."""
    mend = "use the checkpoint's token ids"
    for token in tokens:
        within = f"is outside the vocabulary of {vocabulary_size}" if vocabulary_size else "is negative"
        inside = token >= 0 and (vocabulary_size is None or token < vocabulary_size)
        require(inside, param, f"token {token} {within}", mend)
