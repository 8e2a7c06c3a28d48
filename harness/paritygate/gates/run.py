"""All gates, one after the other, and the run that they make."""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paritygate.bench import gate as bench
from paritygate.faults import gate as faults
from paritygate.gates import abort, batch, bound, cache, envelope, golden, history, identity
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.waivers import apply
from paritygate.machine import this_machine
from paritygate.policy import (
    AbortClaim,
    BatchClaim,
    BoundClaim,
    CacheClaim,
    EnvelopeClaim,
    GoldenClaim,
    HistoryClaim,
    IdentityClaim,
    Policy,
)
from paritygate.run import Run
from paritygate.structure import gate as structure
from paritygate.verdict import Check, Exit, Outcome, Verdict, exit_code

# In this order: rules need no engine, and times are taken last, when the arms are gone.
PARITY = {
    "golden": (golden.run, GoldenClaim),
    "identity": (identity.run, IdentityClaim),
    "cache": (cache.run, CacheClaim),
    "envelope": (envelope.run, EnvelopeClaim),
    "history": (history.run, HistoryClaim),
    "batch": (batch.run, BatchClaim),
    "abort": (abort.run, AbortClaim),
    "bound": (bound.run, BoundClaim),
}
GATES = ("structure", *PARITY, "faults", "bench")
TIERS = {"fast": tuple(gate for gate in GATES if gate != "bench"), "real": GATES}

Progress = Callable[[str], None]
OnCheck = Callable[[Check], None]


def applicable(policy: Policy, tier: str) -> tuple[str, ...]:
    """The gates of a tier that the policy gives something to test."""
    kinds = {type(claim) for claim in policy.claims.values()}
    unused = {gate for gate, (_, kind) in PARITY.items() if kind not in kinds}
    if not policy.structure.rules:
        unused.add("structure")
    if "faults" not in policy.tables:
        unused.add("faults")
    if "bench" not in policy.tables:
        unused.add("bench")
    return tuple(gate for gate in TIERS[tier] if gate not in unused)


def _git(root: Path, *words: str) -> str:
    told = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    return told.stdout.strip() if told.returncode == 0 else ""


def _checks(gate: str, policy: Policy, root: Path, progress: Progress, arms: ArmPool) -> Iterator[Check]:
    if gate in PARITY:
        return PARITY[gate][0](policy, root, progress, arms)
    return {"structure": structure, "faults": faults, "bench": bench}[gate].run(policy, root, progress)


def _run_gate(gate: str, policy: Policy, root: Path, progress: Progress, arms: ArmPool) -> Iterator[Check]:
    """A gate's checks; one that breaks or says nothing is a check that could not run."""
    said = 0
    try:
        for check in _checks(gate, policy, root, progress, arms):
            said += 1
            yield check
    except Exception as error:  # the boundary that owns the run: the other gates go on
        what = f"the gate itself broke: {type(error).__name__}: {error}"
        details = {"traceback": traceback.format_exc()}
        yield Check(gate, f"{gate}/broke", Outcome.COULD_NOT_RUN, Verdict.SETUP_ERROR, what, details)
        return
    if not said:
        what = "the gate tested nothing: the policy names nothing for it"
        yield Check(gate, f"{gate}/empty", Outcome.FAIL, Verdict.NOT_RUN, what)


def manifests_of(checks: list[Check]) -> dict[str, dict[str, Any]]:
    """The first manifest that each arm showed."""
    found: dict[str, dict[str, Any]] = {}
    for check in checks:
        for arm, manifest in check.details.get("manifests", {}).items():
            if isinstance(manifest, dict):
                found.setdefault(arm, manifest)
    return found


def _figures_of(checks: list[Check]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for check in checks:
        figures |= check.details.get("figures", {})
    return figures


def verify(
    policy: Policy, root: Path, gates: tuple[str, ...], *, tier: str, progress: Progress, on_check: OnCheck
) -> Run:
    """Run the gates; Ctrl-C ends the run early, with what was found until then and exit 4."""
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    checks: list[Check] = []
    interrupted = False
    with ArmPool(policy) as arms:
        try:
            for gate in gates:
                if gate in ("faults", "bench"):
                    arms.close()
                for found in _run_gate(gate, policy, root, progress, arms):
                    check = dataclasses.replace(found, at=time.monotonic() - clock)
                    checks.append(check)
                    on_check(check)
        except KeyboardInterrupt:
            interrupted = True
    # A partial run cannot say that a waiver is not needed.
    whole = not interrupted and gates == applicable(policy, tier)
    judged = apply(checks, policy.waivers, started.date()) if whole else checks
    return Run(
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
        commit=_git(root, "rev-parse", "HEAD"),
        dirty=bool(_git(root, "status", "--porcelain")),
        policy_hash=policy.hash,
        machine=this_machine(),
        checks=tuple(judged),
        exit=Exit.INCONCLUSIVE if interrupted else exit_code(judged),
        tier=tier,
        interrupted=interrupted,
        manifests=manifests_of(judged),
        figures=_figures_of(judged),
    )
