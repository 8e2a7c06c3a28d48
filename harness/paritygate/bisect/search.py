"""Binary search over commits of which some cannot be judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Trial:
    """What came of one revision: `said` is a sentence, `check` the evidence where there is any.

    `fork` are the tokens, prompt included, after which its answer is another.
    """

    revision: str
    state: State
    said: str
    check: dict[str, Any] | None = None
    fork: tuple[int, ...] = ()


@dataclass(frozen=True)
class Found:
    """The commits among which the first bad one is: one, unless those between could not be judged."""

    candidates: tuple[str, ...]
    last_good: str
    first_bad: Trial
    skipped: tuple[Trial, ...]


def search(good: str, commits: Sequence[str], last: Trial, judge: Callable[[str], Trial]) -> Found:
    """The first bad commit among `commits`: those after `good`, oldest first, the last of them `last`, which is bad."""
    before, first_bad = -1, last
    at_bad = len(commits) - 1
    skipped: dict[int, Trial] = {}
    while untried := [at for at in range(before + 1, at_bad) if at not in skipped]:
        at = untried[len(untried) // 2]
        trial = judge(commits[at])
        if trial.state is State.GOOD:
            before = at
        elif trial.state is State.BAD:
            at_bad, first_bad = at, trial
        else:
            skipped[at] = trial
    return Found(
        candidates=tuple(commits[before + 1 : at_bad + 1]),
        last_good=good if before < 0 else commits[before],
        first_bad=first_bad,
        skipped=tuple(skipped[at] for at in sorted(skipped)),
    )
