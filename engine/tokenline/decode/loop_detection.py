"""Recognises a row whose tail repeats itself."""

from __future__ import annotations

from collections.abc import Sequence

from tokenline.request import LoopDetection


def detect_loop(generated: Sequence[int], settings: LoopDetection) -> int | None:
    """The shortest period of which the tail holds `settings.repeats` copies, None if there is none.

    A short period must fill `settings.min_tokens` too, so that "...", a row of dashes or a table rule is no loop.
    """
    # A period of which the text cannot hold enough copies is not looked for, however large the bound asked for.
    for period in range(1, min(settings.max_period, len(generated) // settings.repeats) + 1):
        span = max(period * settings.repeats, settings.min_tokens)
        if span <= len(generated) and _repeats(generated[-span:], period):
            return period
    return None


def _repeats(tail: Sequence[int], period: int) -> bool:
    return all(tail[i] == tail[i - period] for i in range(len(tail) - 1, period - 1, -1))
