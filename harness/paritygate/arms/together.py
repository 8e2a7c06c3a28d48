"""Several cases asked at once of one arm."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from paritygate.case import Case
from paritygate.stream import Stream


def together(generate: Callable[[Case], Stream], cases: tuple[Case, ...]) -> tuple[Stream, ...]:
    """A stream for each case, all asked at once, in the order of the cases; the first error is raised.

    A row whose prompt is longer, or that was asked later, joins while others decode; one that is done leaves them.
    """
    with ThreadPoolExecutor(max_workers=len(cases)) as pool:
        return tuple(pool.map(generate, cases))
