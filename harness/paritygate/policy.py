"""paritygate.toml, typed: what is tested, how it is run, and what it is held to."""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from paritygate.bench.settings import BenchPolicy
from paritygate.case import Case, CaseError, load_cases
from paritygate.structure.rules import StructurePolicy
from paritygate.toml_lines import Path as KeyPath
from paritygate.toml_lines import line_of
from paritygate.verdict import Verdict

POLICY_SCHEMA = 1
POLICY_FILE = "paritygate.toml"


class PolicyError(Exception):
    """A policy that cannot be used; the message names file, line and key."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every table refuses keys that it does not know."""


class CheckpointPolicy(_Table, frozen=True, kw_only=True):
    """The checkpoint under test: what an arm is given as MODEL, and the hash of its weights, which goldens need."""

    name: str
    model: str
    sha256: str = ""

    @property
    def location(self) -> str:
        """MODEL for arms; PARITYGATE_MODEL names another place of the same weights."""
        return os.environ.get("PARITYGATE_MODEL") or self.model


class ArmPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run an engine: `kind` is an entry point of `paritygate.arms`, the rest are that arm's options."""

    name: str
    kind: str
    options: dict[str, Any]


class GoldenPolicy(_Table, frozen=True, kw_only=True):
    """Where goldens lie and what a stream must clear to become one.

    `margin_floor` is in logits; `noise_multiple` is how many times the largest difference between oracles the floor
    must be at least. A policy without goldens has no directory; the floor still says which positions are decided.
    """

    directory: str = ""
    margin_floor: float = 0.02
    noise_multiple: float = 100
    oracles: tuple[str, ...] = ("transformers", "mlx-lm")
    threads: tuple[int, ...] = (1, 2)
    reason: str = ""


class GoldenClaim(_Table, frozen=True, kw_only=True, tag_field="kind", tag="golden"):
    """Each arm says what the goldens say; `cases` narrows it, none means all of them.

    `promise` "decided" lets a near-tie go either way. Logprobs lie within the envelope's `max_abs_logit`.
    """

    arms: tuple[str, ...]
    envelope: str
    cases: tuple[str, ...] = ()
    promise: Literal["identical", "decided"] = "identical"

    @property
    def passing(self) -> tuple[Verdict, ...]:
        """The verdicts that keep the promise."""
        return (Verdict.IDENTICAL,) if self.promise == "identical" else (Verdict.IDENTICAL, Verdict.TIE_BREAK)


class IdentityClaim(_Table, frozen=True, kw_only=True, tag_field="kind", tag="identity"):
    """The arms say the same thing, byte for byte; the first is the reference."""

    arms: tuple[str, ...]
    cases: tuple[str, ...]


class CacheClaim(_Table, frozen=True, kw_only=True, tag_field="kind", tag="cache"):
    """Cold, hit and second hit are identical, and the hits did reuse tokens.

    `repeat` cases run three times. A `turns` case runs up to its last but one user message, then whole. A
    `shorter_after_longer` case runs whole, then cut to `shorter_tokens`; a `changed_end` case runs cut to as many, then
    with another token just before its last, where a state that is adopted one token too far is wrong.
    """

    arms: tuple[str, ...]
    repeat: tuple[str, ...]
    shorter_after_longer: tuple[str, ...] = ()
    changed_end: tuple[str, ...] = ()
    shorter_tokens: int = 0
    turns: tuple[str, ...] = ()
    max_tokens: int = 16


class EnvelopeClaim(_Table, frozen=True, kw_only=True, tag_field="kind", tag="envelope"):
    """Teacher-forced logits of the second arm lie within a registered envelope of the first's."""

    arms: tuple[str, str]
    cases: tuple[str, ...]
    envelope: str


class HistoryClaim(_Table, frozen=True, kw_only=True, tag_field="kind", tag="history"):
    """Penalties see every token up to the last one: each arm's answer follows a recomputation from its raw logits."""

    arms: tuple[str, ...]
    cases: tuple[str, ...]


Claim = GoldenClaim | IdentityClaim | CacheClaim | EnvelopeClaim | HistoryClaim


class Envelope(_Table, frozen=True, kw_only=True):
    """A registered numeric tolerance: KL divergence in nats, logits in their own unit, and where they come from."""

    kl_mean: float
    kl_max: float
    max_abs_logit: float
    reason: str


class Waiver(_Table, frozen=True, kw_only=True):
    """A check that may fail until a day, and why; one that is no longer needed fails the run."""

    check: str
    reason: str
    issue: str
    expires: datetime.date


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A whole paritygate.toml. `hash` is of the file's bytes."""

    hash: str
    checkpoint: CheckpointPolicy
    arms: dict[str, ArmPolicy]
    goldens: GoldenPolicy
    claims: dict[str, Claim]
    envelopes: dict[str, Envelope]
    cases: tuple[Case, ...]
    structure: StructurePolicy
    bench: BenchPolicy
    waivers: tuple[Waiver, ...]
    tables: frozenset[str]  # the sections that the file has

    def golden_cases(self, root: Path) -> tuple[Case, ...]:
        """The cases that have, or wait for, a golden. Raises CaseError."""
        if not self.goldens.directory:
            return ()
        return load_cases(root / self.goldens.directory / "cases.toml")

    def all_cases(self, root: Path) -> dict[str, Case]:
        """Every case by name: those with a golden, then the policy's own. Raises CaseError."""
        return {case.name: case for case in (*self.golden_cases(root), *self.cases)}


_FIELD = re.compile(r"(?:unknown|required) field `([^`]+)`")
_AT = re.compile(r" - at `(key in )?\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class _Reader:
    """Converts the tables of one file; an error names the line of the key at fault."""

    def __init__(self, path: Path, text: str, document: dict[str, Any]) -> None:
        self.path = path
        self.text = text
        self.document = document

    def error(self, key: KeyPath, what: str) -> PolicyError:
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")
        return PolicyError(f"{self.path.name}:{line_of(self.text, key)}: {name}: {what}")

    def take(self, key: KeyPath, value: Any, kind: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            message = str(error)
            inner: KeyPath = ()
            if at := _AT.search(message):
                inner = tuple(int(i) if i else name for name, i in _STEP.findall(at.group(2)))
                message = message[: at.start()]
            if field := _FIELD.search(message):
                if "unknown" in message:
                    raise self.error(key + inner + (field.group(1),), "unknown key") from error
                raise self.error(key + inner, f"`{field.group(1)}` is missing") from error
            raise self.error(key + inner, message) from error

    def table(self, name: str) -> dict[str, Any]:
        value = self.document.get(name, {})
        if not isinstance(value, dict):
            raise self.error((name,), "is not a table")
        return value

    def named(self, name: str, kind: Any) -> dict[str, Any]:
        return {key: self.take((name, key), value, kind) for key, value in self.table(name).items()}


SECTIONS = (
    "schema", "checkpoint", "arms", "goldens", "claims", "envelopes", "cases", "structure", "bench", "waivers",
)  # fmt: skip


def _arms(reader: _Reader) -> dict[str, ArmPolicy]:
    arms = {}
    for name, table in reader.table("arms").items():
        if not isinstance(table, dict) or not isinstance(table.get("kind"), str):
            raise reader.error(("arms", name), "`kind` is missing")
        options = {key: value for key, value in table.items() if key != "kind"}
        arms[name] = ArmPolicy(name=name, kind=table["kind"], options=options)
    return arms


def _check_names(reader: _Reader, policy: Policy, known_cases: set[str]) -> None:
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
    reader = _Reader(path, text, document)
    for key in document:
        if key not in SECTIONS:
            raise reader.error((key,), "unknown key")
    reader.take(("schema",), document.get("schema"), Literal[1])
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
        tables=frozenset(document),
    )
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
