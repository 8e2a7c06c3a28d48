"""A whole policy, typed: what is tested, how it is run, and what it is held to."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import msgspec

from paritygate.bench.settings import BenchPolicy
from paritygate.case import Case
from paritygate.faults.settings import FaultsPolicy
from paritygate.invocation import Invocation
from paritygate.policy.case_file import load_cases
from paritygate.policy.claims import Claim
from paritygate.policy.table import Table
from paritygate.quantities import Natural, NotNegative, Positive, Seconds, Threads
from paritygate.structure.rules import StructurePolicy
from paritygate.triage.settings import TriagePolicy


class CheckpointPolicy(Table, frozen=True, kw_only=True):
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


class GoldenPolicy(Table, frozen=True, kw_only=True):
    """Where goldens lie and what a stream must clear to become one.

    `margin_floor` is in logits; `noise_multiple` is how many times the largest difference between oracles the floor
    must be at least. `repeats_alone` is how often one oracle must say the same to be admitted without a second one; 0
    admits none. A policy without goldens has no directory; the floor still says which positions are decided.
    """

    directory: str = ""
    margin_floor: NotNegative = 0.02
    noise_multiple: Positive = 100
    oracles: tuple[str, ...] = ("transformers", "mlx-lm")
    threads: tuple[Threads, ...] = (1, 2)
    repeats_alone: Natural = 0
    reason: str = ""


class Envelope(Table, frozen=True, kw_only=True):
    """A registered numeric tolerance: KL divergence in nats, logits in their own unit, and where they come from."""

    kl_mean: NotNegative
    kl_max: NotNegative
    max_abs_logit: NotNegative
    reason: str


class Waiver(Table, frozen=True, kw_only=True):
    """A check that may fail until a day, and why; one that is no longer needed fails the run."""

    check: str
    reason: str
    issue: str
    expires: datetime.date


class ReusePolicy(Table, frozen=True, kw_only=True):
    """What a result depends on beside what the harness sees by itself; without `sources` nothing is reused.

    `sources` are globs, relative to the root, over all that the engine under test is made of. `environment` are globs
    over the names of environment variables that it reads, beside those that are always looked at. `weights` is the
    file or folder (`~` is the home folder) that the checkpoint's model stands for, where that is a name.
    """

    sources: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    weights: str = ""


class MembersPolicy(Table, frozen=True, kw_only=True):
    """Folders with a policy of their own, such as one for each checkpoint: `verify` runs their gates too.

    `roots` are globs, relative to the root, of folders that hold a paritygate.toml; each may take `timeout_s` seconds.
    """

    roots: tuple[str, ...] = ()
    timeout_s: Seconds = 300.0

    def found(self, root: Path) -> tuple[str, ...]:
        """The members, relative to the root, in order."""
        places = {place for wanted in self.roots for place in root.glob(f"{wanted}/paritygate.toml")}
        return tuple(sorted(place.parent.relative_to(root).as_posix() for place in places))


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
    faults: FaultsPolicy
    waivers: tuple[Waiver, ...]
    reuse: ReusePolicy
    members: MembersPolicy
    tables: frozenset[str]  # the sections that the file has
    invocation: Invocation = Invocation()  # for the commands that are printed about it
    triage: TriagePolicy = TriagePolicy()

    def golden_cases(self, root: Path) -> tuple[Case, ...]:
        """The cases that have, or wait for, a golden. Raises PolicyError."""
        if not self.goldens.directory:
            return ()
        return load_cases(root / self.goldens.directory / "cases.toml")

    def all_cases(self, root: Path) -> dict[str, Case]:
        """Every case by name: those with a golden, then the policy's own. Raises PolicyError."""
        return {case.name: case for case in (*self.golden_cases(root), *self.cases)}
