"""The shards of one run, joined: what is missing, double or of another run is refused."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from paritygate.gates.run import GATES, applicable, figures_of, manifests_of, plan_of
from paritygate.gates.shard import Shard, ShardError
from paritygate.gates.waivers import apply
from paritygate.policy import Policy
from paritygate.run import Machine, Run, read
from paritygate.verdict import Exit, exit_code


class MergeError(Exception):
    """Reports that are not the shards of one run; the message says why."""


def join(places: Sequence[Path], policy: Policy, root: Path) -> Run:
    """The run that these shards are. Raises RunError and MergeError."""
    runs = [read(place) for place in places]
    _one_run(runs, places, policy)
    _every_shard_once(runs, places)
    checks = [check for run in runs for check in run.checks]
    checks.sort(key=lambda check: GATES.index(check.gate) if check.gate in GATES else len(GATES))
    doubles = [name for name, count in Counter(check.name for check in checks).items() if count > 1]
    if doubles:
        raise MergeError(f"two shards hold the check {doubles[0]}: they are not of one split")
    first = min(runs, key=lambda run: run.started)
    interrupted = any(run.interrupted for run in runs)
    for unit in first.plan:
        if not interrupted and not any(check.name.startswith(f"{unit}/") for check in checks):
            raise MergeError(f"no shard holds a check of {unit}: it never ran")
    # Part of the gates cannot say that a waiver is not needed.
    everything = plan_of(policy, root, applicable(policy, first.tier))
    whole = not interrupted and first.plan == tuple(unit.name for unit in everything)
    day = datetime.datetime.fromisoformat(first.started).date()
    judged = apply(checks, policy.waivers, day) if whole else checks
    return dataclasses.replace(
        first,
        seconds=sum(run.seconds for run in runs),
        machine=_machine([run.machine for run in runs]),
        checks=tuple(judged),
        exit=Exit.INCONCLUSIVE if interrupted else exit_code(judged),
        interrupted=interrupted,
        manifests=manifests_of(judged),
        figures=figures_of(judged),
        reused={unit: origin for run in runs for unit, origin in run.reused.items()},
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        shard="",
        units=first.plan,
    )


def _one_run(runs: Sequence[Run], places: Sequence[Path], policy: Policy) -> None:
    first = runs[0]
    for run, place in zip(runs, places, strict=True):
        if not run.shard:
            raise MergeError(f"{place}: is a whole run, no shard: only reports of verify --shard are merged")
        for what, ours, theirs in (
            ("another commit", first.commit, run.commit),
            ("another state of uncommitted changes", first.dirty, run.dirty),
            ("another content of uncommitted files", first.state, run.state),
            ("another policy", first.policy_hash, run.policy_hash),
            ("another tier", first.tier, run.tier),
            ("other units of work", first.plan, run.plan),
        ):
            if ours != theirs:
                raise MergeError(f"{place}: {what} than {places[0]} ({_told(theirs)}, not {_told(ours)})")
    if first.policy_hash != policy.hash:
        raise MergeError(
            "the shards ran under another paritygate.toml than the one here: merge at their commit"
        )


def _told(value: object) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _every_shard_once(runs: Sequence[Run], places: Sequence[Path]) -> None:
    try:
        shards = [Shard.parse(run.shard) for run in runs]
    except ShardError as error:
        raise MergeError(str(error)) from error
    count = shards[0].count
    for shard, place in zip(shards, places, strict=True):
        if shard.count != count:
            raise MergeError(f"{place}: is shard {shard}, {places[0]} is one of {count}")
    given = Counter(shard.index for shard in shards)
    double = [index for index, times in given.items() if times > 1]
    if double:
        raise MergeError(f"shard {double[0]}/{count} is there twice")
    missing = [f"{index}/{count}" for index in range(1, count + 1) if index not in given]
    if missing:
        raise MergeError(f"missing: shard {', '.join(missing)}: without it nothing is said about the whole")
    units = Counter(unit for run in runs for unit in run.units)
    for unit in runs[0].plan:
        if units[unit] != 1:
            raise MergeError(f"{unit} is in {units[unit]} shards, not in one: they are not of one split")


def _machine(machines: Sequence[Machine]) -> Machine:
    """The machine, or what is common to several: their names joined, the least of each size."""

    def joined(field: str) -> str:
        return " + ".join(dict.fromkeys(str(getattr(machine, field)) for machine in machines))

    return Machine(
        key=joined("key"),
        system=joined("system"),
        processor=joined("processor"),
        cores=min(machine.cores for machine in machines),
        memory_bytes=min(machine.memory_bytes for machine in machines),
        python=joined("python"),
    )
