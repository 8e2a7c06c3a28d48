"""One run of the gates: what was tested, where, and what came of it. A run is what a report is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from paritygate.verdict import Check, Exit

RUN_SCHEMA = 1


@dataclass(frozen=True)
class Machine:
    """Where a run happened; `key` is what a golden or a margin of this class of machine is filed under."""

    key: str
    system: str
    processor: str
    cores: int
    memory_bytes: int
    python: str


@dataclass(frozen=True)
class Run:
    """The finished (or interrupted) run of `paritygate verify`; every field is plain JSON once `to_json` is called.

    `started` is ISO 8601 in UTC, `commit` the checkout's revision ("" outside git), `manifests` the effective
    settings of each arm by its name, `figures` what the bench gate measured by its name.
    """

    started: str
    seconds: float
    commit: str
    dirty: bool
    policy_hash: str
    machine: Machine
    checks: tuple[Check, ...]
    exit: Exit
    tier: str = "fast"
    interrupted: bool = False
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The document that report.json holds."""
        document = asdict(self)
        document["schema"] = RUN_SCHEMA
        document["exit"] = int(self.exit)
        document["verdict"] = self.exit.name.lower().replace("_", " ")
        return document
