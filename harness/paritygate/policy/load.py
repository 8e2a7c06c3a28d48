"""Reads paritygate.toml and refuses what cannot be meant."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

from paritygate.arms.base import ArmError
from paritygate.arms.registry import arm_class
from paritygate.bench.settings import BenchPolicy
from paritygate.case import Case, CaseError
from paritygate.policy.claims import Claim, EnvelopeClaim, GoldenClaim, IdentityClaim
from paritygate.policy.policy import (
    ArmPolicy,
    CheckpointPolicy,
    Envelope,
    GoldenPolicy,
    Policy,
    ReusePolicy,
    Waiver,
)
from paritygate.policy.reader import PolicyError, Reader
from paritygate.structure.rules import StructurePolicy

POLICY_SCHEMA = 1
POLICY_FILE = "paritygate.toml"

SECTIONS = (
    "schema", "checkpoint", "arms", "goldens", "claims", "envelopes", "cases", "structure", "bench", "waivers",
    "reuse",
)  # fmt: skip


def _arms(reader: Reader) -> dict[str, ArmPolicy]:
    arms = {}
    for name, table in reader.table("arms").items():
        if not isinstance(table, dict) or not isinstance(table.get("kind"), str):
            raise reader.error(("arms", name), "`kind` is missing")
        options = {key: value for key, value in table.items() if key != "kind"}
        try:
            wanted = arm_class(table["kind"]).Options
        except ArmError as error:
            raise reader.error(("arms", name, "kind"), str(error)) from error
        reader.take(("arms", name), options, wanted)
        arms[name] = ArmPolicy(name=name, kind=table["kind"], options=options)
    return arms


def _check_names(reader: Reader, policy: Policy, known_cases: set[str]) -> None:
    for name, claim in policy.claims.items():
        if not claim.arms:
            raise reader.error(("claims", name, "arms"), "names no arm: nothing would be tested")
        for arm in claim.arms:
            if arm not in policy.arms:
                raise reader.error(("claims", name, "arms"), f"no arm is named {arm!r}")
        for field in ("cases", "repeat", "shorter_after_longer", "changed_end", "turns"):
            for case in getattr(claim, field, ()):
                if case not in known_cases:
                    raise reader.error(("claims", name, field), f"no case is named {case!r}")
        if isinstance(claim, IdentityClaim) and len(claim.arms) < 2:
            raise reader.error(("claims", name, "arms"), "an identity needs two arms")
        if isinstance(claim, GoldenClaim) and "goldens" not in policy.tables:
            raise reader.error(("claims", name), "a golden claim needs a [goldens] table")
        if isinstance(claim, GoldenClaim | EnvelopeClaim) and claim.envelope not in policy.envelopes:
            raise reader.error(("claims", name, "envelope"), f"no envelope is named {claim.envelope!r}")


def load(root: Path) -> Policy:
    """The policy of the repository at `root`. Raises PolicyError naming line and key."""
    path = root / POLICY_FILE
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
        document = tomllib.loads(text)
    except FileNotFoundError:
        raise PolicyError(
            f"{path}: not found: run paritygate at the root of a repository that has one"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolicyError(f"{path.name}: {error}") from error
    reader = Reader(path, text, document)
    for key in document:
        if key not in SECTIONS:
            raise reader.error((key,), "unknown key")
    if document.get("schema") != POLICY_SCHEMA:
        given = repr(document["schema"]) if "schema" in document else "missing"
        raise reader.error(("schema",), f"is {given}; this version reads schema = {POLICY_SCHEMA}")
    policy = Policy(
        hash=hashlib.sha256(raw).hexdigest(),
        checkpoint=reader.take(("checkpoint",), reader.table("checkpoint"), CheckpointPolicy),
        arms=_arms(reader),
        goldens=reader.take(("goldens",), reader.table("goldens"), GoldenPolicy),
        claims=reader.named("claims", Claim),
        envelopes=reader.named("envelopes", Envelope),
        cases=reader.take(("cases",), document.get("cases", []), tuple[Case, ...]),
        structure=reader.take(("structure",), reader.table("structure"), StructurePolicy),
        bench=reader.take(("bench",), reader.table("bench"), BenchPolicy),
        waivers=reader.take(("waivers",), document.get("waivers", []), tuple[Waiver, ...]),
        reuse=reader.take(("reuse",), reader.table("reuse"), ReusePolicy),
        tables=frozenset(document),
    )
    if "reuse" in document and not policy.reuse.sources:
        raise reader.error(("reuse",), "`sources` is missing: name the files that the engine is made of")
    for table, key in (("goldens", "directory"), ("checkpoint", "sha256")):
        if "goldens" in document and not getattr(getattr(policy, table), key):
            raise reader.error((table,), f"`{key}` is missing: goldens need it")
    try:
        names = [case.name for case in (*policy.golden_cases(root), *policy.cases)]
        for index, case in enumerate(policy.cases):
            if names.count(case.name) > 1:
                raise reader.error(("cases", index), f"another case is named {case.name!r} too")
            if case.max_tokens < 0:
                raise reader.error(("cases", index, "max_tokens"), f"{case.max_tokens} is negative")
        known_cases = set(names)
    except CaseError as error:
        raise PolicyError(str(error)) from error
    _check_names(reader, policy, known_cases)
    return policy
