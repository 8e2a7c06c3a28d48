"""All gates, one after the other, and the run that they make."""

from __future__ import annotations

import dataclasses
import datetime
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paritygate.bench import gate as bench
from paritygate.faults import gate as faults
from paritygate.gates import (
    abort,
    batch,
    bound,
    cache,
    envelope,
    golden,
    history,
    identity,
    members,
    partition,
)
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.reuse import Reuse
from paritygate.gates.shard import Shard
from paritygate.gates.units import KINDS, Unit, narrowed, units_of
from paritygate.gates.waivers import apply
from paritygate.interruption import Interruption
from paritygate.machine import this_machine
from paritygate.policy import Policy
from paritygate.revision import told, uncommitted
from paritygate.run import Run
from paritygate.structure import gate as structure
from paritygate.verdict import Check, Exit, Outcome, Verdict, exit_code

Progress = Callable[[str], None]

# In this order: rules need no engine, and times are taken last, when the arms are gone.
PARITY: dict[str, Callable[..., Iterator[Check]]] = {
    "golden": golden.run,
    "identity": identity.run,
    "cache": cache.run,
    "envelope": envelope.run,
    "partition": partition.run,
    "history": history.run,
    "batch": batch.run,
    "abort": abort.run,
    "bound": bound.run,
}
ALONE: dict[str, Callable[[Policy, Path, Progress, list[Unit]], Iterator[Check]]] = {
    # With the machine to themselves: no arm stays open.
    "members": members.run,
    "faults": lambda policy, root, progress, _: faults.run(policy, root, progress),
    "bench": lambda policy, root, progress, _: bench.run(policy, root, progress),
}
GATES = ("structure", *PARITY, *ALONE)
# At a desk the members, which are many and small, and the times, which want a quiet machine, are asked for apart.
TIERS = {
    "fast": tuple(gate for gate in GATES if gate != "bench"),
    "real": tuple(gate for gate in GATES if gate != "members"),
}

OnCheck = Callable[[Check], None]


def applicable(policy: Policy, tier: str) -> tuple[str, ...]:
    """The gates of a tier that the policy gives something to test."""
    kinds = {type(claim) for claim in policy.claims.values()}
    unused = {gate for gate, (kind, _) in KINDS.items() if kind not in kinds}
    if not policy.structure.rules:
        unused.add("structure")
    unused |= {gate for gate in ALONE if gate not in policy.tables}
    return tuple(gate for gate in TIERS[tier] if gate not in unused)


def _checks(
    gate: str, policy: Policy, root: Path, progress: Progress, arms: ArmPool, units: list[Unit]
) -> Iterator[Check]:
    if gate == "structure":
        yield from structure.run(policy, root, progress)
        return
    if gate in ALONE:
        yield from ALONE[gate](policy, root, progress, units)
        return
    if gate == "golden" and any(unit.name == gate for unit in units):
        # The store is judged against every claim of the policy, the replays are those of the units.
        yield golden.store_check(policy, root)
    yield from PARITY[gate](narrowed(policy, units), root, progress, arms)


def _run_gate(
    gate: str, policy: Policy, root: Path, progress: Progress, arms: ArmPool, units: list[Unit], said: int
) -> Iterator[Check]:
    """A gate's checks; one that breaks, or says nothing beside the `said` that were reused, could not run."""
    try:
        for check in _checks(gate, policy, root, progress, arms, units):
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


def figures_of(checks: list[Check]) -> dict[str, Any]:
    """What the bench gate measured, by figure."""
    figures: dict[str, Any] = {}
    for check in checks:
        figures |= check.details.get("figures", {})
    return figures


def plan_of(policy: Policy, root: Path, gates: tuple[str, ...]) -> tuple[Unit, ...]:
    """The units of work of these gates."""
    cases = tuple(case.name for case in policy.golden_cases(root))
    return units_of(policy, gates, cases, policy.members.found(root))


def verify(
    policy: Policy,
    root: Path,
    gates: tuple[str, ...],
    *,
    tier: str,
    progress: Progress,
    on_check: OnCheck,
    fresh: bool = False,
    shard: Shard | None = None,
    notes: tuple[str, ...] = (),
    interruption: Interruption | None = None,
    save: Callable[[Run], None] = lambda run: None,
) -> Run:
    """Run the gates, or a shard of them; Ctrl-C ends the run early, with what was found until then and exit 4.

    `notes` come before the run's own. An interrupted run is handed to `save` before its arms are stopped.

    What passed under the same key is reused, unless `fresh`. Raises ShardError where there is too little to share.
    """
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    commit, dirty = told(root, "rev-parse", "HEAD"), bool(told(root, "status", "--porcelain"))
    stamp = started.isoformat(timespec="seconds")
    plan = plan_of(policy, root, gates)
    mine = plan if shard is None else shard.of(plan)
    reuse = Reuse(policy, root, fresh=fresh)
    checks: list[Check] = []
    interruption = interruption or Interruption()
    interrupted = False

    def made() -> Run:
        # A partial run cannot say that a waiver is not needed.
        whole = not interrupted and shard is None and gates == applicable(policy, tier)
        judged = apply(checks, policy.waivers, started.date()) if whole else list(checks)
        return Run(
            started=stamp,
            seconds=time.monotonic() - clock,
            commit=commit,
            dirty=dirty,
            policy_hash=policy.hash,
            machine=this_machine(),
            checks=tuple(judged),
            exit=Exit.INCONCLUSIVE if interrupted else exit_code(judged),
            tier=tier,
            interrupted=interrupted,
            manifests=manifests_of(judged),
            figures=figures_of(judged),
            reused=reuse.reused,
            notes=(*notes, *reuse.notes),
            shard=str(shard or ""),
            state=uncommitted(root) if shard is not None else "",
            units=tuple(unit.name for unit in mine),
            plan=tuple(unit.name for unit in plan),
        )

    with ArmPool(policy) as arms:
        try:
            for gate in gates:
                pending = [unit for unit in mine if unit.gate == gate]
                if shard is not None and not pending:
                    continue
                if gate in ALONE:
                    arms.close()
                before = len(checks)
                for unit, kept in reuse.recall(list(pending)):
                    pending.remove(unit)
                    for check in kept:
                        checks.append(check)
                        on_check(check)
                recalled = len(checks)
                if recalled > before and not pending:
                    continue
                for found in _run_gate(gate, policy, root, progress, arms, pending, recalled - before):
                    check = dataclasses.replace(found, at=time.monotonic() - clock)
                    checks.append(check)
                    on_check(check)
                if not any(check.name == f"{gate}/broke" for check in checks[recalled:]):
                    reuse.keep(pending, checks[recalled:], recorded=stamp, commit=commit, dirty=dirty)
            interruption.heed_no_more()
        except KeyboardInterrupt:
            interrupted = True
            interruption.keep(lambda: save(made()))
    return made()
