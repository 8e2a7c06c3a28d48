"""The members gate: folders with a policy of their own pass their own gates, side by side where cores allow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from paritygate.gates.lanes import side_by_side
from paritygate.gates.units import Unit
from paritygate.nested import Nested
from paritygate.policy import Policy
from paritygate.verdict import Check, Exit, Outcome, Verdict

GATE = "members"
# A member tries no faults and takes no times: those want the machine to themselves.
LEFT_OUT = ("--leave-out", "faults", "--leave-out", "bench")
OUTCOMES = {
    Exit.PASS: Outcome.PASS,
    Exit.GATE_FAILED: Outcome.FAIL,
    Exit.INCONCLUSIVE: Outcome.INCONCLUSIVE,
}


def _whole(name: str, report: Mapping[str, Any], seconds: float) -> Check:
    """The member's run as one check."""
    checks = report["checks"]
    outcome = OUTCOMES.get(report["exit"], Outcome.COULD_NOT_RUN)
    per_gate = Counter(check["gate"] for check in checks)
    red = [check["name"] for check in checks if check["outcome"] != Outcome.PASS]
    told = ", ".join(f"{gate} {count}" for gate, count in per_gate.items())
    if outcome is Outcome.PASS:
        headline = f"{len(checks)} checks passed in {seconds:.1f} s: {told}"
    else:
        headline = f"{len(red)} of {len(checks)} checks did not pass: {', '.join(red[:3])}" + (
            f" and {len(red) - 3} more" if len(red) > 3 else ""
        )
    details = {
        "checks": dict(per_gate),
        "waived": [check["name"] for check in checks if check["details"].get("waiver")],
        "notes": report.get("notes", []),
    }
    verdict = Verdict.HELD if outcome is Outcome.PASS else Verdict.BROKEN
    return Check(GATE, name, outcome, verdict, headline, details, seconds)


def _member(member: str, root: Path, timeout_s: float, progress: Callable[[str], None]) -> Iterable[Check]:
    progress(f"members: {member}")
    started = time.monotonic()
    report, why = Nested(root, timeout_s, {}).verified(Path(member), LEFT_OUT)
    seconds = time.monotonic() - started
    name = f"{GATE}/{member}"
    if report is None or report["interrupted"]:
        late = f"its gates did not end within {timeout_s:g} s: give them more in [members] timeout_s"
        headline = why if report is None else late
        yield Check(GATE, f"{name}/gates", Outcome.COULD_NOT_RUN, Verdict.SETUP_ERROR, headline, {}, seconds)
        return
    if not report["checks"]:
        what = "its policy tests nothing: give it claims, or take it out of [members] roots"
        yield Check(GATE, f"{name}/gates", Outcome.FAIL, Verdict.NOT_RUN, what, {}, seconds)
        return
    for check in report["checks"]:
        if check["outcome"] != Outcome.PASS:
            yield Check(
                GATE,
                f"{name}/{check['name']}",
                Outcome(check["outcome"]),
                Verdict(check["verdict"]),
                check["headline"],
                check["details"],
                check["seconds"],
            )
    yield _whole(f"{name}/gates", report, seconds)


def run(policy: Policy, root: Path, progress: Callable[[str], None], units: list[Unit]) -> Iterator[Check]:
    """A check for each member, and one for each of its checks that did not pass."""
    members = [unit.folder for unit in units]
    yield from side_by_side(
        [partial(_member, member, root, policy.members.timeout_s, progress) for member in members]
    )
