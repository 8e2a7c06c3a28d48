"""A run in one sentence, and what to do next in another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from paritygate.run import Run
from paritygate.verdict import Check, Exit, Outcome

# The order in which a reader wants them: what is wrong first.
ORDER = (Outcome.FAIL, Outcome.COULD_NOT_RUN, Outcome.INCONCLUSIVE, Outcome.PASS)
WORDS = {
    Exit.PASS: "passed",
    Exit.GATE_FAILED: "failed",
    Exit.COULD_NOT_RUN: "could not run",
    Exit.INCONCLUSIVE: "inconclusive",
    Exit.USAGE: "not started",
}
_VERBS = {Outcome.FAIL: "failed", Outcome.COULD_NOT_RUN: "could not run", Outcome.INCONCLUSIVE: "cannot tell"}


def counts(checks: Iterable[Check]) -> dict[Outcome, int]:
    """How many checks had each outcome, all outcomes named."""
    found = Counter(check.outcome for check in checks)
    return {outcome: found.get(outcome, 0) for outcome in ORDER}


def by_gate(checks: Iterable[Check]) -> dict[str, list[Check]]:
    """Checks by gate, gates in the order they ran."""
    found: dict[str, list[Check]] = {}
    for check in checks:
        found.setdefault(check.gate, []).append(check)
    return found


def recalled(run: Run) -> list[str]:
    """A line for each unit of work whose checks were reused, and for each note about the run itself."""
    lines = []
    for unit, origin in run.reused.items():
        of = sum(check.name.startswith(f"{unit}/") and "reused" in check.details for check in run.checks)
        lines.append(f"reused {unit} ({plural(of, 'check')}) from {origin}")
    return lines + list(run.notes)


def worst_first(checks: Iterable[Check]) -> list[Check]:
    """The checks that did not pass, failures first."""
    return sorted((c for c in checks if c.outcome is not Outcome.PASS), key=lambda c: ORDER.index(c.outcome))


def plural(count: int, noun: str) -> str:
    """`1 check`, `2 checks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def headline(run: Run) -> str:
    """The verdict in one sentence, with what the worst check says."""
    wrong = worst_first(run.checks)
    said = verdict(run)
    return said if run.interrupted or not wrong else f"{said[:-1]}: {_first_sentence(wrong[0].headline)}"


def verdict(run: Run) -> str:
    """The verdict in one sentence; what each check says stands elsewhere."""
    checks = run.checks
    if not checks:
        return "Interrupted before the first check." if run.interrupted else "Nothing was tested."
    wrong = worst_first(checks)
    if run.interrupted:
        return f"Interrupted after {plural(len(checks), 'check')}: nothing is proved about the rest."
    if not wrong:
        gates = by_gate(checks)
        said = "says the same thing" if gates.keys() & {"golden", "identity", "cache"} else "holds its rules"
        timed = [
            c for c in gates.get("bench", ()) if c.verdict == "NO_SLOWER" and "pairs_ns" in str(c.details)
        ]
        speed = ", as fast as before" if timed else ""
        again = sum("reused" in check.details for check in checks)
        reused = f", {again} of them reused from an earlier run" if again else ""
        return f"The engine {said}{speed}: {plural(len(checks), 'check')} passed{reused}."
    first = wrong[0]
    if len(wrong) == 1:
        return f"{first.name} {_VERBS[first.outcome]}."
    same = sum(check.outcome is first.outcome for check in wrong)
    return f"{same} of {plural(len(checks), 'check')} {_VERBS[first.outcome]}; first {first.name}."


def advice(run: Run) -> str:
    """What a reader does next."""
    tally = counts(run.checks)
    if run.shard and tally[Outcome.PASS] == len(run.checks) and not run.interrupted:
        return "This is one shard: join it with the others with paritygate merge DIR... --report OUT"
    if tally[Outcome.FAIL]:
        return "Each failure below shows where it first went wrong and what was expected there."
    if tally[Outcome.COULD_NOT_RUN]:
        return "Mend the setup named below and run again: what could not run proves nothing."
    if run.interrupted:
        return "Run again and let it finish: what was not reached proves nothing."
    if tally[Outcome.INCONCLUSIVE]:
        return "Run again on a quieter machine, or with more rounds: an undecided check is not a pass."
    return "Nothing to do."


def _first_sentence(text: str) -> str:
    end = text.find(". ")
    return (text if end < 0 else text[: end + 1]).rstrip(".") + "."
