"""Which units of a run need not run again, because nothing that they depend on has changed since they passed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from paritygate.gates.reuse_key import Keys, NotKeyed
from paritygate.gates.reuse_store import REUSE_SCHEMA, Kept, ReuseStore
from paritygate.gates.units import Unit, by_unit
from paritygate.policy import Policy, PolicyError
from paritygate.verdict import Check, Outcome


class Reuse:
    """Recalls passes and keeps new ones. `reused` says by unit where its checks come from, `notes` why others ran."""

    def __init__(self, policy: Policy, root: Path, *, fresh: bool = False) -> None:
        self._policy = policy
        self._root = root
        self._fresh = fresh
        self._store = ReuseStore(root)
        self._notes: list[str] = []
        self._parts: dict[str, dict[str, str]] = {}
        self.reused: dict[str, str] = {}

    @cached_property
    def _keys(self) -> Keys | None:
        # Taken when a unit that could be reused is first asked for: rules, times and faults never are.
        return self._read_keys() if self._policy.reuse.sources else None

    def _read_keys(self) -> Keys | None:
        try:
            return Keys(self._policy, self._root)
        except (NotKeyed, OSError, ValueError, PolicyError) as error:
            self._notes.append(f"Nothing is reused: {error}")
            return None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was not reused, and why."""
        return tuple(dict.fromkeys((*self._notes, *self._store.notes)))

    def recall(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, tuple[Check, ...]]]:
        """The units that passed under the same key, with the checks of then, each saying that it was reused."""
        for unit in units:
            parts = self._key(unit)
            if parts is None or self._fresh:
                continue
            kept = self._store.load(unit.name, parts)
            if kept is None or not unit.complete(kept.checks):
                self._say_why(unit, parts)
                continue
            self.reused[unit.name] = kept.origin
            yield unit, tuple(_marked(check, kept) for check in kept.checks)

    def _key(self, unit: Unit) -> dict[str, str] | None:
        if not unit.reusable or self._keys is None:
            return None
        if unit.name not in self._parts:
            try:
                self._parts[unit.name] = self._keys.of(unit)
            except (NotKeyed, OSError) as error:
                self._notes.append(f"{unit.name} always runs: {error}")
                return None
        return self._parts[unit.name]

    def _say_why(self, unit: Unit, parts: dict[str, str]) -> None:
        last = self._store.last(unit.name)
        if last is not None:
            changed = [name for name in parts if parts[name] != last.parts.get(name)]
            if changed:
                self._notes.append(f"{unit.name} runs again, changed since it passed: {', '.join(changed)}")

    def keep(
        self, units: Iterable[Unit], checks: list[Check], *, recorded: str, commit: str, dirty: bool
    ) -> None:
        """Keep each unit that passed whole; nothing of a run under which something changed."""
        found = by_unit(checks, units)
        passed = [
            unit
            for unit in units
            if unit.name in self._parts
            and unit.complete(found[unit.name])
            and all(check.outcome is Outcome.PASS for check in found[unit.name])
        ]
        if not passed:
            return
        now = self._read_keys()
        for unit in passed:
            try:
                unchanged = now is not None and now.of(unit) == self._parts[unit.name]
            except (NotKeyed, OSError):
                unchanged = False
            if not unchanged:
                self._notes.append(f"{unit.name} is not kept for reuse: something changed while it ran")
                continue
            self._store.keep(
                Kept(
                    schema=REUSE_SCHEMA,
                    unit=unit.name,
                    parts=self._parts[unit.name],
                    recorded=recorded,
                    commit=commit,
                    dirty=dirty,
                    checks=tuple(found[unit.name]),
                )
            )


def _marked(check: Check, kept: Kept) -> Check:
    return dataclasses.replace(
        check,
        headline=f"{check.headline}; reused from {kept.origin}",
        details=check.details
        | {
            "reused": {
                "recorded": kept.recorded,
                "commit": kept.commit,
                "dirty": kept.dirty,
                "seconds": check.seconds,
            }
        },
        seconds=0.0,
    )
