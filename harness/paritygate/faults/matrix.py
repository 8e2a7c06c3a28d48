"""The kill matrix: every fault, which gate caught it, after how long, and whether the diagnosis names it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from paritygate.faults.catalogue import Fault
from paritygate.faults.trial import Trial, attempt
from paritygate.policy import Policy

MATRIX_SCHEMA = 1
CLEAN = "the clean engine"


def document(told: list[dict[str, Any]], *, commit: str, started: str, machine: str) -> dict[str, Any]:
    """What a page is made of, from trials as plain JSON; those without a fault are the clean tree's."""
    planted = [trial for trial in told if trial["fault"] is not None]
    controls = [trial for trial in told if trial["fault"] is None]
    caught = [trial for trial in planted if trial["state"] == "caught"]
    waiting = sum(trial["state"] == "not applicable" for trial in planted)
    return {
        "schema": MATRIX_SCHEMA,
        "commit": commit,
        "started": started,
        "machine": machine,
        "caught": len(caught),
        "tried": len(planted) - waiting,
        "named": sum(trial["named_by"] is not None for trial in caught),
        "not_applicable": waiting,
        "clean_runs": len(controls),
        "clean_red": sum(trial["state"] != "caught" for trial in controls),
        "trials": planted,
        "controls": controls,
    }


def faults_of(found: Sequence[Trial]) -> list[str]:
    """What speaks against the gates; nothing where every fault is caught by name, or explained."""
    said = [sentence for trial in found if (sentence := fault_of(trial))]
    if not any(trial.fault is not None and trial.state != "not applicable" for trial in found):
        said.append("no fault was planted: nothing is known of the gates")
    return said


def fault_of(trial: Trial) -> str:
    """One sentence on what speaks against the gates, "" for nothing."""
    fault = trial.fault
    if fault is None:
        if trial.state == "dead":
            return f"{CLEAN} could not be judged: {trial.note}"
        if trial.state != "caught":
            return f"{CLEAN} is not green: {trial.reds[0].headline if trial.reds else f'exit {trial.exit}'}"
        return ""
    if trial.state == "dead":
        return f"{fault.id} was not tried: {trial.note}"
    if trial.state == "survived" and not fault.survives:
        found = f"; instead: {trial.reds[0].headline}" if trial.reds else ""
        return f"{fault.id} survived: {fault.defect} was to be {fault.expect}, and was not{found}"
    if trial.state == "caught" and fault.names and trial.named_by is None:
        told = f": {trial.reds[0].headline}" if trial.reds else ""
        return f"{fault.id} is caught, and no red check names it ({fault.names!r}){told}"
    if trial.state == "caught" and fault.survives:
        return f"{fault.id} is caught now, and still explained as a survivor: remove `survives`"
    return ""


def trial_json(trial: Trial) -> dict[str, Any]:
    """A trial as plain JSON; what a page draws."""
    document = msgspec.to_builtins(trial)
    fault = trial.fault
    return document | {
        "fault": None if fault is None else fault.id,
        "room": "" if fault is None else fault.room,
        "defect": CLEAN if fault is None else fault.defect,
        "seen_as": "" if fault is None else fault.seen_as,
        "expect": "green" if fault is None else fault.expect,
        "gates": list(trial.gates),
        "first_red": trial.first_red,
    }


def trials(
    root: Path, policy: Policy, faults: Iterable[Fault | None], progress: Callable[[str], None]
) -> Iterator[Trial]:
    """Try each fault, None standing for the clean tree, one after the other."""
    for fault in faults:
        progress(f"faults: {fault.id if fault else CLEAN}")
        yield attempt(root, policy.faults, policy.structure.roots, fault)
