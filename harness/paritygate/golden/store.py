"""Goldens on disk: one JSON Lines file a case, the first line what was asked and who answered, then a line a token.

A pending file lies beside the accepted one until it is accepted. Writing one case never touches another's file.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from paritygate.case import Case
from paritygate.stream import Position, Stream, Usage

GOLDEN_SCHEMA = 1
REFERENCE = "reference"  # the layer that holds for every machine
ACCEPTED = ".jsonl"
PENDING = ".pending.jsonl"


class GoldenError(Exception):
    """A golden that cannot be read or must not be written; the message names the file."""


class OracleRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run that agreed. The difference is the largest of any reported logprob or margin from the first run's."""

    oracle: str
    dtype: str
    threads: int
    versions: dict[str, str]
    max_difference: float


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Who computed a golden, from what, where, and how sure it is."""

    recorded: str
    runs: tuple[OracleRun, ...]
    weights_sha256: str
    tokenizer_hash: str
    template_hash: str
    machine: str
    margin_floor: float


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """When, and why, somebody let a golden in."""

    date: str
    reason: str


class Golden(msgspec.Struct, frozen=True, kw_only=True):
    """What the oracles agreed on for a case.

    `positions` has one entry a token, and one more for the end-of-sequence token that ended the answer.
    """

    schema: int
    case: Case
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    finish_cause: str
    min_margin: float
    provenance: Provenance
    acceptance: Acceptance | None = None
    positions: tuple[Position, ...] = ()

    def as_stream(self) -> Stream:
        """The golden as a comparison sees it: the stream of the oracle that was recorded."""
        first = self.provenance.runs[0]
        return Stream(
            case=self.case.name,
            arm=f"golden ({first.oracle} {first.dtype})",
            text=self.text,
            prompt_token_ids=self.prompt_token_ids,
            token_ids=self.token_ids,
            positions=self.positions,
            finish_reason=self.finish_reason,
            finish_cause=self.finish_cause,
            usage=Usage(
                prompt_tokens=len(self.prompt_token_ids),
                completion_tokens=len(self.token_ids),
                total_tokens=len(self.prompt_token_ids) + len(self.token_ids),
            ),
        )


def encode(golden: Golden) -> bytes:
    """The file of a golden."""
    header = msgspec.json.encode(msgspec.structs.replace(golden, positions=()))
    return b"\n".join([header, *(msgspec.json.encode(position) for position in golden.positions)]) + b"\n"


def decode(raw: bytes, *, at: str) -> Golden:
    """The golden of a file's bytes. Raises GoldenError."""
    first, _, rest = raw.partition(b"\n")
    try:
        schema = msgspec.json.decode(first, type=dict[str, Any]).get("schema")
        if schema != GOLDEN_SCHEMA:
            raise GoldenError(f"{at}: golden schema {schema!r}, this version reads {GOLDEN_SCHEMA}")
        golden = msgspec.json.decode(first, type=Golden)
        positions = tuple(
            msgspec.json.decode(line, type=Position) for line in rest.splitlines() if line.strip()
        )
    except msgspec.MsgspecError as error:
        raise GoldenError(f"{at}: not a golden: {error}") from error
    golden = msgspec.structs.replace(golden, positions=positions)
    if fault := fault_of(golden):
        raise GoldenError(f"{at}: {fault}")
    return golden


def fault_of(golden: Golden) -> str:
    """Why a golden proves nothing, "" if it is sound: what it says about itself must fit together."""
    ended = golden.finish_cause == "Eos"
    said = golden.positions[: len(golden.token_ids)]
    if not golden.positions:
        return "has no positions: nothing could be compared"
    if len(golden.positions) != len(golden.token_ids) + ended:
        return f"has {len(golden.positions)} positions for {len(golden.token_ids)} tokens: the file was cut"
    if [position.token_id for position in said] != list(golden.token_ids):
        return "its positions are not those of its tokens"
    margins = [position.margin for position in golden.positions if position.margin is not None]
    if len(margins) != len(golden.positions) or min(margins) < golden.provenance.margin_floor:
        return f"a position's margin is missing or below the floor of {golden.provenance.margin_floor}"
    if any("tokenline" in run.oracle for run in golden.provenance.runs):
        return "was computed by the engine that it would judge"
    if len({run.oracle for run in golden.provenance.runs}) < 2:
        return "was agreed on by fewer than two oracles"
    return ""


class Store:
    """The goldens of one checkpoint, in the reference layer below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / REFERENCE

    def path(self, case: str, *, pending: bool = False) -> Path:
        """Where a case's golden lies."""
        return self.directory / f"{case}{PENDING if pending else ACCEPTED}"

    def names(self, *, pending: bool = False) -> tuple[str, ...]:
        """Names of the cases that have a file, sorted."""
        waiting = {path.name.removesuffix(PENDING) for path in self.directory.glob(f"*{PENDING}")}
        if pending:
            return tuple(sorted(waiting))
        every = (p.name.removesuffix(ACCEPTED) for p in self.directory.glob(f"*{ACCEPTED}"))
        return tuple(sorted(name for name in every if not name.endswith(".pending")))

    def load(self, case: str, *, pending: bool = False) -> Golden:
        """A golden from its file. Raises GoldenError."""
        path = self.path(case, pending=pending)
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise GoldenError(f"{path}: {error.strerror}") from error
        golden = decode(raw, at=str(path))
        if golden.case.name != case:
            raise GoldenError(f"{path}: holds the golden of {golden.case.name}")
        return golden

    def write_pending(self, golden: Golden) -> Path:
        """Put a golden up for review. Raises GoldenError under CI, or where the disk does not take it."""
        refuse_under_ci("record a golden")
        return self._write(self.path(golden.case.name, pending=True), encode(golden))

    def accept(self, case: str, acceptance: Acceptance) -> Path:
        """Make a pending golden the accepted one. Raises GoldenError."""
        refuse_under_ci("accept a golden")
        if not acceptance.reason.strip():
            raise GoldenError("a golden is accepted for a reason: give one")
        golden = msgspec.structs.replace(self.load(case, pending=True), acceptance=acceptance)
        path = self._write(self.path(case), encode(golden))
        self.path(case, pending=True).unlink()
        return path

    def _write(self, path: Path, raw: bytes) -> Path:
        # Whole or not at all: what was there stays until all of the new file is on the disk.
        temporary = ""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self.directory, prefix=".writing-")
            with os.fdopen(descriptor, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            raise GoldenError(f"{path}: not written, nothing was changed: {error.strerror}") from error
        return path


def refuse_under_ci(what: str) -> None:
    """Raise GoldenError where CI says that nobody is looking."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise GoldenError(f"CI is set: CI must not {what}; do it at your desk and commit the file")
