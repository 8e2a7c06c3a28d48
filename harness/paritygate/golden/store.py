"""Goldens on disk: one JSON Lines file a case, the first line what was asked and who answered, then a line a token.

A pending file lies beside the accepted one until it is accepted or rejected. Writing one case never touches another's
file. `reference/` holds for every machine; `machines/KEY/` overrides it on machines whose key matches.
"""

from __future__ import annotations

import os
import tempfile
from functools import cached_property
from pathlib import Path

import msgspec

from paritygate.golden.golden import (
    GOLDEN_SCHEMA,
    Acceptance,
    Golden,
    GoldenError,
    OracleRun,
    Provenance,
    decode,
    encode,
    fault_of,
)
from paritygate.golden.layers import MACHINES, REFERENCE, most_specific
from paritygate.machine import this_machine

__all__ = [
    "ACCEPTED", "GOLDEN_SCHEMA", "PENDING", "REFERENCE", "Acceptance", "Golden", "GoldenError", "NotWritten",
    "OracleRun", "Provenance", "Store", "decode", "encode", "fault_of", "refuse_under_ci",
]  # fmt: skip

ACCEPTED = ".jsonl"
PENDING = ".pending.jsonl"


class NotWritten(GoldenError):
    """The disk did not take a golden; whatever was there before is there still."""


class Store:
    """The goldens of one checkpoint below `directory`, as a machine sees them: this one unless its key is given."""

    def __init__(self, directory: Path, machine: str = "") -> None:
        self.root = directory
        self.directory = directory / REFERENCE
        self._machine = machine

    @cached_property
    def machine(self) -> str:
        """The key of the machine that layers are chosen for."""
        return self._machine or this_machine().key

    def layers(self) -> tuple[str, ...]:
        """The reference layer, then every machine-keyed one that has a folder."""
        keyed = sorted(path.name for path in (self.root / MACHINES).glob("*") if path.is_dir())
        return (REFERENCE, *(f"{MACHINES}/{key}" for key in keyed))

    def path(self, case: str, *, pending: bool = False, layer: str = REFERENCE) -> Path:
        """Where a layer's golden of a case lies."""
        return self.root / layer / f"{case}{PENDING if pending else ACCEPTED}"

    def names(self, *, pending: bool = False, layer: str | None = None) -> tuple[str, ...]:
        """Names of the cases that have a file, sorted; in any layer unless one is given."""
        found: set[str] = set()
        for one in self.layers() if layer is None else (layer,):
            names = {path.name for path in (self.root / one).glob(f"*{ACCEPTED}")}
            waiting = {name for name in names if name.endswith(PENDING)}
            found |= {name.removesuffix(PENDING) for name in waiting} if pending else {
                name.removesuffix(ACCEPTED) for name in names - waiting
            }  # fmt: skip
        return tuple(sorted(found))

    def resolved(self, case: str) -> str | None:
        """The layer whose accepted golden holds on this machine, None for none. Raises GoldenError on a tie."""
        holding = [layer for layer in self.layers() if self.path(case, layer=layer).is_file()]
        return most_specific(holding, self.machine, case)

    def waiting(self, case: str, layer: str | None = None) -> str:
        """The layer in which a case is pending. Raises GoldenError for none, and for several of which none is given."""
        holding = [
            one for one in self.layers() if self.path(case, pending=True, layer=one).is_file()
            and layer in (None, one)
        ]  # fmt: skip
        if not holding:
            where = f" in the layer {layer}" if layer else ""
            raise GoldenError(f"{case} is not pending{where}: record it first")
        if len(holding) > 1:
            raise GoldenError(f"{case} is pending in {' and '.join(holding)}: say which with --layer KEY")
        return holding[0]

    def load(self, case: str, *, pending: bool = False, layer: str | None = None) -> Golden:
        """A golden from its file: of the layer given, or the one that holds here. Raises GoldenError."""
        if layer is None:
            layer = self.waiting(case) if pending else self.resolved(case) or REFERENCE
        path = self.path(case, pending=pending, layer=layer)
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise GoldenError(f"{path}: {error.strerror}") from error
        golden = decode(raw, at=str(path))
        if golden.case.name != case:
            raise GoldenError(f"{path}: holds the golden of {golden.case.name}")
        return golden

    def write_pending(self, golden: Golden, layer: str = REFERENCE) -> Path:
        """Put a golden up for review. Raises GoldenError under CI, NotWritten where the disk does not take it."""
        refuse_under_ci("record a golden")
        return self._write(self.path(golden.case.name, pending=True, layer=layer), encode(golden))

    def accept(self, case: str, acceptance: Acceptance, layer: str | None = None) -> Path:
        """Make a pending golden the accepted one of its layer. Raises GoldenError."""
        refuse_under_ci("accept a golden")
        if not acceptance.reason.strip():
            raise GoldenError("a golden is accepted for a reason: give one")
        layer = self.waiting(case, layer)
        golden = msgspec.structs.replace(self.load(case, pending=True, layer=layer), acceptance=acceptance)
        path = self._write(self.path(case, layer=layer), encode(golden))
        self.path(case, pending=True, layer=layer).unlink()
        return path

    def reject(self, case: str, layer: str | None = None) -> Path:
        """Remove a pending golden, and nothing else; one that cannot be read may go too. Raises GoldenError."""
        refuse_under_ci("reject a golden")
        path = self.path(case, pending=True, layer=self.waiting(case, layer))
        try:
            path.unlink()
        except OSError as error:
            raise GoldenError(f"{path}: not removed: {error.strerror}") from error
        return path

    def _write(self, path: Path, raw: bytes) -> Path:
        # Whole or not at all: what was there stays until all of the new file is on the disk.
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
            with os.fdopen(descriptor, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            raise NotWritten(f"{path}: not written, nothing was changed: {error.strerror}") from error
        return path


def refuse_under_ci(what: str) -> None:
    """Raise GoldenError where CI says that nobody is looking."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise GoldenError(f"CI is set: CI must not {what}; do it at your desk and commit the file")
