"""What a comparison can say, what a gate makes of it, and the exit code that follows."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


class Verdict(enum.StrEnum):
    """The result of one comparison, or of one rule or benchmark."""

    IDENTICAL = "IDENTICAL"
    TIE_BREAK = "TIE_BREAK"
    WITHIN_ENVELOPE = "WITHIN_ENVELOPE"
    DIVERGED = "DIVERGED"
    LENGTH = "LENGTH"
    NOT_RUN = "NOT_RUN"
    SETUP_ERROR = "SETUP_ERROR"
    # rules and benchmarks
    HELD = "HELD"
    BROKEN = "BROKEN"
    NO_SLOWER = "NO_SLOWER"
    SLOWER = "SLOWER"
    INCONCLUSIVE = "INCONCLUSIVE"


class Outcome(enum.StrEnum):
    """What a gate makes of a verdict under the claim it was tested for."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    COULD_NOT_RUN = "could not run"


class Exit(enum.IntEnum):
    """Process exit codes of `paritygate`."""

    PASS = 0
    GATE_FAILED = 1
    USAGE = 2
    COULD_NOT_RUN = 3
    INCONCLUSIVE = 4


@dataclass(frozen=True)
class Check:
    """One thing that a gate tested: JSON-able, and readable without the code that made it.

    `name` is unique in a run; `headline` is one sentence that says what happened and, where it failed, where the
    fault is; `details` holds the evidence (diff, top-2, figures), plain JSON values only. `seconds` is what the check
    took, `at` when it was known, in seconds after the run began.
    """

    gate: str
    name: str
    outcome: Outcome
    verdict: Verdict
    headline: str
    details: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    at: float = 0.0


def exit_code(checks: Iterable[Check]) -> Exit:
    """The exit code of a run; a run without a single check could not run (nothing passes empty)."""
    outcomes = {check.outcome for check in checks}
    if not outcomes:
        return Exit.COULD_NOT_RUN
    for outcome, code in (
        (Outcome.FAIL, Exit.GATE_FAILED),
        (Outcome.COULD_NOT_RUN, Exit.COULD_NOT_RUN),
        (Outcome.INCONCLUSIVE, Exit.INCONCLUSIVE),
    ):
        if outcome in outcomes:
            return code
    return Exit.PASS
