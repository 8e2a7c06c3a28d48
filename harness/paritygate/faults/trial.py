"""One fault tried: planted in a copy, judged by the gates there, and what they said."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.faults.catalogue import Fault
from paritygate.faults.plant import DeadPlant, Planted, planted_copy
from paritygate.faults.settings import FaultsPolicy
from paritygate.nested import Nested
from paritygate.verdict import Exit, Outcome

# Seconds of one test; by a thread that ends the process, because what hangs a test hangs its teardown too.
LIMIT = ("--timeout=40", "--timeout-method=thread")


@dataclass(frozen=True)
class Red:
    """A check, or a test, that did not pass; `at` is when it was known, in seconds after the gates began."""

    gate: str
    name: str
    verdict: str
    outcome: str
    headline: str
    at: float


@dataclass(frozen=True)
class Trial:
    """What came of a fault, or of the clean tree (`fault` is None).

    `state` is caught, survived, dead (it could not be planted, or did not run) or not applicable. `checks` counts all
    that the gates tested.
    """

    fault: Fault | None
    state: str
    exit: int = 0
    reds: tuple[Red, ...] = ()
    named_by: Red | None = None
    places: tuple[str, ...] = ()
    checks: int = 0
    seconds: float = 0.0
    note: str = ""

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates that did not pass, in the order in which they said so."""
        return tuple(dict.fromkeys(red.gate for red in self.reds))

    @property
    def first_red(self) -> float | None:
        """Seconds until the first red was known."""
        return min((red.at for red in self.reds), default=None)


class _Run:
    """Commands in a planted copy, whose engine is imported before the installed one."""

    def __init__(self, planted: Planted, policy: FaultsPolicy, roots: tuple[str, ...]) -> None:
        self.planted = planted
        self.policy = policy
        self._roots = roots
        self.gates = Nested(planted.root, policy.timeout_s, self._path(()) | {"PYTHONDONTWRITEBYTECODE": "1"})

    def _path(self, more: tuple[str, ...]) -> dict[str, str]:
        folders = dict.fromkeys((*self.policy.python_path, *more))
        return {"PYTHONPATH": os.pathsep.join(str(self.planted.root / folder) for folder in folders)}

    def tested(self, words: list[str]) -> tuple[int | None, str]:
        """The copy's tests, which import its harness too."""
        return self.gates.command(words, self._path(self._roots))

    def probe(self) -> str:
        """Why the planted engine is not the one that would run; "" where it is."""
        if not self.policy.probe:
            return ""
        code = f"import importlib.util as u; s = u.find_spec({self.policy.probe!r}); print(s.origin if s else None)"
        _, told = self.gates.command(["-c", code])
        lines = told.strip().splitlines() or [""]
        inside = Path(lines[-1]).is_relative_to(self.planted.root)
        return "" if inside else f"{self.policy.probe} is imported from {lines[-1]}, not from the copy"


def _reds(report: Mapping[str, Any]) -> list[Red]:
    return [
        Red(check["gate"], check["name"], check["verdict"], check["outcome"], check["headline"], check["at"])
        for check in report["checks"]
        if check["outcome"] != Outcome.PASS
    ]


def _tested(run: _Run, fault: Fault) -> tuple[list[Red], int, str]:
    """What pytest says of the fault's tests: reds, exit status, and why it proves nothing."""
    started = time.monotonic()
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *LIMIT, *fault.tests]
    status, printed = run.tested(words)
    took = time.monotonic() - started
    lines = [line for line in printed.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if status == 0:
        return [], 0, ""
    if status == 1 and lines:
        named = [line.partition(" ")[2].partition(" - ") for line in lines]
        return [Red("tests", name, "BROKEN", "fail", why or name, took) for name, _, why in named], 1, ""
    if status is None or "Timeout" in printed:
        return [Red("tests", fault.tests[0], "BROKEN", "fail", "the test hung", took)], 1, ""
    tail = " ".join(printed.split())[-400:]
    if status == 1:  # every test passed, and the session did not
        return [Red("tests", fault.tests[0], "BROKEN", "fail", tail, took)], 1, ""
    return [], 3, f"pytest ended with {status}: {tail}"


def _met(fault: Fault, code: int, reds: list[Red]) -> bool:
    failed = any(red.outcome == Outcome.FAIL for red in reds)
    return {
        "red": failed,
        "inconclusive": code == Exit.INCONCLUSIVE and not failed,
        "could not run": code == Exit.COULD_NOT_RUN and not failed,
        "green": code == Exit.PASS and not reds,
    }[fault.expect]


def _judged(run: _Run, fault: Fault | None) -> tuple[list[Red], int, int, str]:
    """Reds, exit code, how many checks there were, and why nothing is proved."""
    if fault is not None and fault.tests:
        reds, code, why = _tested(run, fault)
        return reds, code, len(fault.tests), why
    reds, codes, checks = [], [], 0
    options = [word for gate in (fault.gates if fault else ()) for word in ("--only", gate)]
    # A copy tries no faults of its own, and no times: copies run side by side with whatever else the machine does.
    options += ["--leave-out", "faults", "--leave-out", "bench"]
    if fault is not None and fault.bar:
        options += ["--bar", "HEAD"]
    runs = [(run.planted.root / ((fault and fault.target) or run.policy.target), options)]
    if fault is not None and fault.structure:
        runs.append((run.planted.root, ["--only", "structure"]))
    for root, given in runs:
        report, printed = run.gates.verified(root, given)
        if report is None:
            return reds, int(Exit.COULD_NOT_RUN), checks, printed
        reds += _reds(report)
        codes.append(int(report["exit"]))
        checks += len(report["checks"])
    worst = next(
        code for code in (Exit.GATE_FAILED, Exit.COULD_NOT_RUN, Exit.INCONCLUSIVE, *codes) if code in codes
    )
    return reds, int(worst), checks, ""


def _sentence_that_names(fault: Fault, reds: list[Red]) -> Red | None:
    return next((red for red in reds if fault.names and fault.says(red.headline, red.name)), None)


def attempt(root: Path, policy: FaultsPolicy, roots: tuple[str, ...], fault: Fault | None) -> Trial:
    """Plant the fault, or nothing, in a copy of `root` and run the gates there."""
    started = time.monotonic()

    def trial(state: str, **more: Any) -> Trial:
        return Trial(fault, state, seconds=time.monotonic() - started, **more)

    if fault is not None and fault.not_applicable:
        return trial("not applicable", note=fault.not_applicable)
    try:
        with planted_copy(root, fault) as planted:
            run = _Run(planted, policy, roots)
            if why := run.probe():
                return trial("dead", note=why, places=planted.places)
            reds, code, checks, why = _judged(run, fault)
    except DeadPlant as error:
        return trial("dead", note=str(error))
    told: dict[str, Any] = {"exit": code, "reds": tuple(reds), "places": planted.places, "checks": checks}
    if why:
        return trial("dead", note=why, **told)
    if fault is None:
        return trial("survived" if reds or code != Exit.PASS else "caught", **told)
    state = "caught" if _met(fault, code, reds) else "survived"
    return trial(state, named_by=_sentence_that_names(fault, reds), note=fault.survives, **told)
