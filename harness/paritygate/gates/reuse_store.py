"""Passes that were kept: one file a unit and key below `.paritygate/reuse`, whole or not there, bounded in size."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from paritygate.verdict import Check, Outcome

REUSE_SCHEMA = 1
FOLDER = ".paritygate"
MAX_BYTES = 64 << 20
MAX_FILES = 512


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The checks of a unit that passed. `parts` is what the key was made of; `digest` is over all the rest."""

    schema: int
    unit: str
    parts: dict[str, str]
    recorded: str
    commit: str
    dirty: bool
    checks: tuple[Check, ...]
    digest: str = ""

    @property
    def origin(self) -> str:
        """When and from what it was computed, for a sentence."""
        commit = f" {self.commit[:7]}" if self.commit else ""
        return f"{self.recorded[:10]}{commit}{' (uncommitted changes)' if self.dirty else ''}"


def key_of(parts: dict[str, str]) -> str:
    """One digest over all parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _digest(kept: Kept) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(kept, digest=""))).hexdigest()


def _plain(checks: Iterable[Check]) -> tuple[Check, ...]:
    # Evidence as a file holds it: what is no JSON value becomes text, as in the report.
    raw: Any = json.loads(json.dumps([asdict(check) for check in checks], default=str))
    return msgspec.convert(raw, tuple[Check, ...])


class ReuseStore:
    """The kept passes of one checkout. Trouble with a file is a sentence in `notes`, and the unit runs again."""

    def __init__(self, root: Path) -> None:
        self.directory = root / FOLDER / "reuse"
        self.notes: list[str] = []

    def _name(self, unit: str) -> str:
        return hashlib.sha256(unit.encode()).hexdigest()[:16]

    def _path(self, unit: str, parts: dict[str, str]) -> Path:
        return self.directory / f"{self._name(unit)}-{key_of(parts)[:32]}.json"

    def _read(self, path: Path) -> Kept | None:
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=Kept)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            self.notes.append(f"{FOLDER}/reuse/{path.name} is not read ({error}): what it held runs again")
            return None
        if kept.schema != REUSE_SCHEMA:
            return None
        if _digest(kept) != kept.digest:
            self.notes.append(f"{FOLDER}/reuse/{path.name} is damaged: what it held runs again")
            return None
        return kept

    def load(self, unit: str, parts: dict[str, str]) -> Kept | None:
        """The pass of this unit under this very key, or None."""
        path = self._path(unit, parts)
        kept = self._read(path)
        if kept is None or kept.unit != unit or kept.parts != parts:
            return None
        if not kept.checks or any(check.outcome is not Outcome.PASS for check in kept.checks):
            self.notes.append(f"{FOLDER}/reuse/{path.name} holds what is no pass: it is not used")
            return None
        os.utime(path)  # the least recently used go first
        return kept

    def last(self, unit: str) -> Kept | None:
        """The newest pass of this unit under any key."""
        try:
            paths = sorted(
                self.directory.glob(f"{self._name(unit)}-*.json"), key=lambda p: p.stat().st_mtime_ns
            )
        except OSError:
            return None
        return self._read(paths[-1]) if paths else None

    def keep(self, kept: Kept) -> None:
        """Write a pass; a disk that does not take it costs a rerun and nothing else."""
        kept = msgspec.structs.replace(kept, checks=_plain(kept.checks))
        kept = msgspec.structs.replace(kept, digest=_digest(kept))
        temporary = ""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory.parent / ".gitignore").write_text("*\n")
            descriptor, temporary = tempfile.mkstemp(dir=self.directory, prefix=".writing-")
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(kept))
            os.replace(temporary, self._path(kept.unit, kept.parts))
            self._prune()
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            self.notes.append(f"{kept.unit} was not kept for reuse: {error.strerror}")

    def _prune(self) -> None:
        files = [(path, path.stat()) for path in self.directory.glob("*.json")]
        files.sort(key=lambda item: item[1].st_mtime_ns, reverse=True)
        total = 0
        for number, (path, status) in enumerate(files):
            total += status.st_size
            if number and (total > MAX_BYTES or number >= MAX_FILES):
                path.unlink(missing_ok=True)
