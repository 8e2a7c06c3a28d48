"""A golden: what oracles agreed on for a case, who computed it and how sure they were; and its file."""

from __future__ import annotations

from typing import Any

import msgspec

from paritygate.case import Case
from paritygate.stream import Position, Stream, Usage

GOLDEN_SCHEMA = 1


class GoldenError(Exception):
    """A golden that cannot be read or must not be written; the message names the file."""


class OracleRun(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one oracle that agreed, `repeats` of them. The difference is the largest of any reported logprob or
    margin from the first run's; `min_margin` is the smallest gap that it saw, in logits.
    """

    oracle: str
    dtype: str
    threads: int
    versions: dict[str, str]
    max_difference: float
    repeats: int = 1
    min_margin: float | None = None


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
    runs = golden.provenance.runs
    if len({run.oracle for run in runs}) < 2 and min((run.repeats for run in runs), default=0) < 2:
        return "was agreed on by fewer than two oracles, and none repeated itself"
    return ""
