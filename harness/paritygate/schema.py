"""JSON Schema of what is read and written: the policy, a stream, a golden's header, a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from paritygate.bench.settings import BenchPolicy
from paritygate.case import Case
from paritygate.faults.settings import FaultsPolicy
from paritygate.golden.store import GOLDEN_SCHEMA, Golden
from paritygate.policy import (
    POLICY_SCHEMA,
    CheckpointPolicy,
    Claim,
    Envelope,
    GoldenPolicy,
    MembersPolicy,
    ReusePolicy,
    Waiver,
)
from paritygate.policy.table import Table
from paritygate.run import RUN_SCHEMA, Run
from paritygate.stream import STREAM_SCHEMA, Stream
from paritygate.structure.rules import StructurePolicy
from paritygate.triage.settings import TriagePolicy


class ArmTable(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run an engine: `kind` names it, the other keys are that kind's own."""

    kind: str


class PolicyFile(Table, frozen=True, kw_only=True):
    """paritygate.toml as one document."""

    schema: Literal[1]
    checkpoint: CheckpointPolicy
    arms: dict[str, ArmTable] = msgspec.field(default_factory=dict)
    goldens: GoldenPolicy | None = None
    claims: dict[str, Claim] = msgspec.field(default_factory=dict)
    envelopes: dict[str, Envelope] = msgspec.field(default_factory=dict)
    cases: tuple[Case, ...] = ()
    structure: StructurePolicy | None = None
    bench: BenchPolicy | None = None
    faults: FaultsPolicy | None = None
    waivers: tuple[Waiver, ...] = ()
    triage: TriagePolicy | None = None
    reuse: ReusePolicy | None = None
    members: MembersPolicy | None = None


def _of(kind: Any, title: str, version: int, **more: Any) -> dict[str, Any]:
    (reference,), components = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    name = reference["$ref"].rpartition("/")[2]
    root = components.pop(name)
    root["properties"] = {"schema": {"const": version}, **root["properties"], **more}
    root["properties"]["schema"] = {"const": version}
    root["required"] = sorted({"schema", *root.get("required", ())})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"paritygate/{title}/{version}",
        **root,
        "title": title,
        "$defs": components,
    }


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "policy": lambda: _of(PolicyFile, "policy", POLICY_SCHEMA),
    "stream": lambda: _of(Stream, "stream", STREAM_SCHEMA),
    "golden": lambda: _of(Golden, "golden", GOLDEN_SCHEMA),
    "report": lambda: _of(Run, "report", RUN_SCHEMA, verdict={"type": "string"}),
}


def schema_text(name: str) -> str:
    """The schema of that name as indented JSON."""
    encoded = msgspec.json.encode(SCHEMAS[name](), order="deterministic")
    return msgspec.json.format(encoded, indent=1).decode() + "\n"
