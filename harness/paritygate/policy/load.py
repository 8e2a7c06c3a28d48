"""Reads paritygate.toml and refuses what cannot be meant."""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from pathlib import Path

import msgspec

from paritygate.arms.base import Arm, ArmError
from paritygate.arms.registry import arm_class, make_arm
from paritygate.bench.settings import BenchPolicy
from paritygate.case import Case
from paritygate.faults.settings import FaultsPolicy
from paritygate.invocation import Invocation
from paritygate.policy.catalogue import load_catalogue
from paritygate.policy.claims import BatchClaim, Claim, GoldenClaim, HistoryClaim, IdentityClaim
from paritygate.policy.needs import (
    cases_by_field,
    described,
    envelope_of,
    lacking,
    named_cases,
    settings_apart,
)
from paritygate.policy.policy import (
    ArmPolicy,
    CheckpointPolicy,
    Envelope,
    GoldenPolicy,
    MembersPolicy,
    Policy,
    ReusePolicy,
    Waiver,
)
from paritygate.policy.reader import PolicyError, Reader, wrong_name
from paritygate.structure.rules import StructurePolicy
from paritygate.triage.settings import TriagePolicy

POLICY_SCHEMA = 1
POLICY_FILE = "paritygate.toml"

SECTIONS = (
    "schema", "checkpoint", "arms", "goldens", "claims", "envelopes", "cases", "structure", "bench", "faults",
    "waivers", "triage", "reuse", "members",
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


def _checkpoint(reader: Reader, root: Path) -> CheckpointPolicy:
    """The checkpoint; a path beside the policy is found from wherever the gates are run."""
    found: CheckpointPolicy = reader.take(("checkpoint",), reader.table("checkpoint"), CheckpointPolicy)
    beside = root / found.model
    return msgspec.structs.replace(found, model=str(beside.resolve())) if beside.exists() else found


def _check_spelling(reader: Reader, policy: Policy) -> None:
    places: list[tuple[str, tuple[str | int, ...]]] = [
        (case.name, ("cases", index)) for index, case in enumerate(policy.cases)
    ]
    for kind, names in (("claims", policy.claims), ("arms", policy.arms)):
        places += [(name, (kind, name)) for name in names]
    for name, place in places:
        if why := wrong_name(name):
            raise reader.error(place, why)


def _check_names(reader: Reader, policy: Policy, known_cases: set[str]) -> None:
    for name, claim in policy.claims.items():
        if not claim.arms:
            raise reader.error(("claims", name, "arms"), "names no arm: nothing would be tested")
        for arm in claim.arms:
            if arm not in policy.arms:
                raise reader.error(("claims", name, "arms"), f"no arm is named {arm!r}")
            if claim.arms.count(arm) > 1:
                raise reader.error(("claims", name, "arms"), f"names {arm!r} twice")
        for field, cases in cases_by_field(claim):
            for case in cases:
                if case not in known_cases:
                    raise reader.error(("claims", name, field), f"no case is named {case!r}")
                if cases.count(case) > 1:
                    raise reader.error(("claims", name, field), f"names {case!r} twice")
        if isinstance(claim, IdentityClaim) and len(claim.arms) < 2:
            raise reader.error(("claims", name, "arms"), "an identity needs two arms")
        if isinstance(claim, BatchClaim) and len(claim.cases) < 2:
            raise reader.error(("claims", name, "cases"), "a batch needs two cases")
        if isinstance(claim, GoldenClaim) and "goldens" not in policy.tables:
            raise reader.error(("claims", name), "a golden claim needs a [goldens] table")
        if (envelope := envelope_of(claim)) is not None and envelope not in policy.envelopes:
            raise reader.error(("claims", name, "envelope"), f"no envelope is named {envelope!r}")


def _check_apart(reader: Reader, policy: Policy, every: tuple[str, ...]) -> None:
    """Refuse two claims that make one check: those of golden and history are named by arm and case alone."""
    held: dict[tuple[type, str, str], str] = {}
    for name, claim in policy.claims.items():
        if not isinstance(claim, GoldenClaim | HistoryClaim):
            continue
        cases = claim.cases or (every if isinstance(claim, GoldenClaim) else ())
        for arm, case in itertools.product(claim.arms, cases):
            other = held.setdefault((type(claim), arm, case), name)
            if other != name:
                what = f"claim {other!r} holds arm {arm!r} to case {case!r} already: merge them"
                raise reader.error(("claims", name, "cases" if claim.cases else "arms"), what)


def _check_needs(reader: Reader, policy: Policy, cases: dict[str, Case]) -> None:
    """Refuse a claim that an arm cannot be held to, whatever it says."""
    made: dict[str, Arm] = {}
    for name, claim in policy.claims.items():
        drawn = [case for case in named_cases(claim) if cases[case].sampler.temperature > 0]
        for arm in claim.arms:
            spec = policy.arms[arm]
            try:
                if arm not in made:
                    made[arm] = make_arm(arm, spec.kind, spec.options, policy.checkpoint.location)
            except ArmError as error:
                raise reader.error(("arms", arm), str(error)) from error
            missing = lacking(claim, made[arm].capabilities, drawn)
            if missing is not None:
                what, why = missing
                raise reader.error(
                    ("claims", name, "arms"), f"arm {arm} ({described(spec)}) cannot give {what}: {why}"
                )


def _check_alike(reader: Reader, policy: Policy) -> None:
    """Refuse an identity between arms whose options alone make them compute in other ways."""
    for name, claim in policy.claims.items():
        if not isinstance(claim, IdentityClaim):
            continue
        first, *others = (
            make_arm(arm, spec.kind, spec.options, policy.checkpoint.location)
            for arm, spec in ((arm, policy.arms[arm]) for arm in claim.arms)
        )
        for other in others:
            if differing := settings_apart(first, other):
                what = (
                    f"{first.name} and {other.name} can never be compared, {differing}: set them alike, or hold "
                    "each to a `golden`, or both to an `envelope`"
                )
                raise reader.error(("claims", name, "arms"), what)


def _check_faults(reader: Reader, policy: Policy, root: Path) -> None:
    """Refuse faults that cannot be read, or whose gates cannot be run, before a gate is half through."""
    if "faults" not in policy.tables:
        return
    try:
        faults = load_catalogue(root, policy.faults.catalogue)
    except PolicyError as error:
        raise reader.error(("faults", "catalogue"), str(error)) from error
    for fault in faults:
        if fault.target and not (root / fault.target / POLICY_FILE).is_file():
            what = f"fault {fault.id}: there is no {fault.target}/{POLICY_FILE}: name the folder of one in `target`"
            raise reader.error(("faults", "catalogue"), what)
    judges = f"{policy.faults.target}/{POLICY_FILE}"
    if not (root / judges).is_file():
        raise reader.error(
            ("faults", "target"), f"there is no {judges}: name the folder of one that judges copies"
        )


def _check_members(reader: Reader, policy: Policy, root: Path) -> None:
    """Refuse a glob that finds no member, and a member that is the policy itself."""
    for index, wanted in enumerate(policy.members.roots):
        found = msgspec.structs.replace(policy.members, roots=(wanted,)).found(root)
        if not found or "." in found:
            what = "is this policy itself" if found else f"no folder {wanted} holds a {POLICY_FILE}"
            raise reader.error(("members", "roots", index), what)
    if "members" in policy.tables and not policy.members.roots:
        raise reader.error(("members",), "`roots` is missing: name the folders that hold a policy")


def load(root: Path) -> Policy:
    """The policy of the repository at `root`. Raises PolicyError naming line and key."""
    path = root / POLICY_FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise PolicyError(
            f"{path}: not found: run paritygate at the root of a repository that has one"
        ) from None
    except OSError as error:
        raise PolicyError(f"{path.name}: {error}") from error
    return policy_of(raw, root)


def policy_of(raw: bytes, root: Path) -> Policy:
    """The policy that a file of these bytes would be at `root`. Raises PolicyError naming line and key."""
    try:
        text = raw.decode("utf-8")
        document = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolicyError(f"{POLICY_FILE}: {error}") from error
    reader = Reader(root / POLICY_FILE, text, document)
    for key in document:
        if key not in SECTIONS:
            raise reader.error((key,), "unknown key")
    if document.get("schema") != POLICY_SCHEMA:
        given = repr(document["schema"]) if "schema" in document else "missing"
        raise reader.error(("schema",), f"is {given}; this version reads schema = {POLICY_SCHEMA}")
    policy = Policy(
        hash=hashlib.sha256(raw).hexdigest(),
        checkpoint=_checkpoint(reader, root),
        arms=_arms(reader),
        goldens=reader.take(("goldens",), reader.table("goldens"), GoldenPolicy),
        claims=reader.named("claims", Claim),
        envelopes=reader.named("envelopes", Envelope),
        cases=reader.take(("cases",), document.get("cases", []), tuple[Case, ...]),
        structure=reader.take(("structure",), reader.table("structure"), StructurePolicy),
        bench=reader.take(("bench",), reader.table("bench"), BenchPolicy),
        faults=reader.take(("faults",), reader.table("faults"), FaultsPolicy),
        waivers=reader.take(("waivers",), document.get("waivers", []), tuple[Waiver, ...]),
        reuse=reader.take(("reuse",), reader.table("reuse"), ReusePolicy),
        members=reader.take(("members",), reader.table("members"), MembersPolicy),
        tables=frozenset(document),
        invocation=Invocation(root=str(root)),
        triage=reader.take(("triage",), reader.table("triage"), TriagePolicy),
    )
    if "reuse" in document and not policy.reuse.sources:
        raise reader.error(("reuse",), "`sources` is missing: name the files that the engine is made of")
    for table, key in (("goldens", "directory"), ("checkpoint", "sha256")):
        if "goldens" in document and not getattr(getattr(policy, table), key):
            raise reader.error((table,), f"`{key}` is missing: goldens need it")
    recorded = policy.golden_cases(root)
    names = [case.name for case in (*recorded, *policy.cases)]
    for index, case in enumerate(policy.cases):
        if names.count(case.name) > 1:
            raise reader.error(("cases", index), f"another case is named {case.name!r} too")
    cases = {case.name: case for case in (*recorded, *policy.cases)}
    _check_spelling(reader, policy)
    _check_names(reader, policy, set(cases))
    _check_apart(reader, policy, tuple(case.name for case in recorded))
    _check_needs(reader, policy, cases)
    _check_alike(reader, policy)
    _check_faults(reader, policy, root)
    _check_members(reader, policy, root)
    return policy
