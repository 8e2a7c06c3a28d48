"""One run of the gates: what was tested, where, and what came of it. A run is what a report is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from paritygate.verdict import Check, Exit

RUN_SCHEMA = 1


class RunError(Exception):
    """A report that cannot be read; the message names the file, and the schema where that is why."""


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
    settings of each arm by its name, `figures` what the bench gate measured by its name. `reused` says, by unit of
    work, which earlier run its checks come from; `notes` are sentences about the run itself. `state` is, of a shard,
    a digest of what was not committed. `shard` is "i/n" for a part, which `units` names, of the whole, which `plan`
    names.
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
    reused: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    shard: str = ""
    state: str = ""
    units: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document that report.json holds."""
        document = asdict(self)
        document["schema"] = RUN_SCHEMA
        document["exit"] = int(self.exit)
        document["verdict"] = self.exit.name.lower().replace("_", " ")
        return document


def from_json(raw: bytes, *, at: str) -> Run:
    """The run of a report.json; keys that this version does not know are left out. Raises RunError."""
    try:
        document = msgspec.json.decode(raw)
        if not isinstance(document, dict) or "schema" not in document:
            raise RunError(f"{at}: not a report of a run: it has no schema")
        if document["schema"] != RUN_SCHEMA:
            raise RunError(f"{at}: report schema {document['schema']!r}, this version reads {RUN_SCHEMA}")
        return msgspec.convert(document, Run)
    except msgspec.MsgspecError as error:
        raise RunError(f"{at}: not a report of a run: {error}") from error


def read(report: Path) -> Run:
    """The run that a report's directory, or its report.json, holds. Raises RunError."""
    path = report / "report.json" if report.is_dir() else report
    try:
        return from_json(path.read_bytes(), at=str(path))
    except OSError as error:
        raise RunError(f"{path}: not a report of a run: {error.strerror}") from error
