"""Who computed a golden, in a line, and what of that has changed, as a diff."""

from __future__ import annotations

from typing import Any

import msgspec

from paritygate.golden.golden import Golden


def summary(golden: Golden) -> str:
    """Oracles with their repeats, and how sure they were."""
    runs = ", ".join(
        f"{run.oracle} {run.dtype}, {run.threads} thread(s)"
        + (f", {run.repeats} times" if run.repeats > 1 else "")
        for run in golden.provenance.runs
    )
    return f"{runs}; smallest margin {golden.min_margin:.4f}"


def _flat(value: Any, name: str) -> dict[str, str]:
    if isinstance(value, dict):
        return {key: text for part in value for key, text in _flat(value[part], f"{name}.{part}").items()}
    return {} if value is None else {name.lstrip("."): str(value)}


def lines_of(golden: Golden) -> dict[str, str]:
    """Everything that is recorded about a golden's making, by a dotted name that does not depend on order."""
    told = msgspec.to_builtins(golden.provenance)
    runs = {f"{run['oracle']} ({run['threads']} threads)": run for run in told.pop("runs")}
    for run in runs.values():
        del run["oracle"], run["threads"]
    return _flat(told | runs, "") | {"min_margin": str(golden.min_margin)}


def changes(before: Golden, after: Golden) -> list[tuple[str, str | None, str | None]]:
    """(name, before, after) of every line that differs; None where one side has no such line."""
    ours, theirs = lines_of(before), lines_of(after)
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [(name, ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)]
