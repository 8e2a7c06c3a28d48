"""What stands in the golden store against what the cases ask for, and what is replayed by no claim."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paritygate.golden.golden import Golden, GoldenError
from paritygate.golden.layers import REFERENCE, matches, most_specific
from paritygate.golden.store import ACCEPTED, Store
from paritygate.policy import GoldenClaim, Policy

SHOWN = 6  # names in a headline, which is one line; the evidence holds all of them


@dataclass(frozen=True)
class Survey:
    """Names of cases, each list sorted, those of a machine's layer as `machines/KEY/CASE`.

    `invalid` says what is wrong with a file; `layers` holds the accepted names of each layer, `resolved` the layer that
    gives each case on this machine; `tokens` counts those that are replayed here.
    """

    accepted: tuple[str, ...]
    pending: tuple[str, ...]
    missing: tuple[str, ...]
    orphans: tuple[str, ...]
    stale: tuple[str, ...]
    never_replayed: tuple[str, ...]
    invalid: tuple[str, ...]
    tokens: int
    machine: str = ""
    layers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)

    @property
    def faults(self) -> tuple[str, ...]:
        """Sentences, short enough for a headline; a store without any is sound."""
        return self.told(SHOWN)

    def told(self, shown: int | None = None) -> tuple[str, ...]:
        """The faults as sentences that each name the first `shown`; all of them unless given."""
        said = []
        if not self.accepted:
            said.append("there is no accepted golden: nothing could be replayed")
        for what, names in (
            ("no golden yet", self.missing),
            ("goldens of no case (orphans)", self.orphans),
            ("goldens of a case that has changed since", self.stale),
            ("goldens that no claim replays", self.never_replayed),
            ("broken", self.invalid),
        ):
            if names:
                left = len(names[shown:]) if shown is not None else 0
                said.append(f"{what}: {', '.join(names[:shown])}" + (f" and {left} more" if left else ""))
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


def labelled(layer: str, name: str) -> str:
    """A golden as a survey names it."""
    return name if layer == REFERENCE else f"{layer}/{name}"


def misfiled(golden: Golden, layer: str, policy: Policy) -> str:
    """Why an accepted golden does not belong where it lies, "" where it does."""
    provenance = golden.provenance
    if provenance.weights_sha256 != policy.checkpoint.sha256:
        return "was recorded from other weights"
    if not matches(layer, provenance.machine):
        return f"was recorded on {provenance.machine}, for which its layer does not hold"
    if len({run.oracle for run in provenance.runs}) < 2:
        alone, repeats = policy.goldens.repeats_alone, min(run.repeats for run in provenance.runs)
        if not alone or repeats < alone:
            demanded = f"{alone} repeats of one" if alone else "two"
            return f"has one oracle, {repeats} time(s): the policy demands {demanded}"
    return ""


def survey(policy: Policy, root: Path) -> Survey:
    """Look at every file of every layer. Raises PolicyError where the cases cannot be read."""
    store = Store(root / policy.goldens.directory)
    cases = {case.name: case for case in policy.golden_cases(root)}
    invalid, stale, orphans, pending = [], [], [], []
    read: dict[tuple[str, str], Golden] = {}
    for layer in store.layers():
        for waiting in (False, True):
            for name in store.names(pending=waiting, layer=layer):
                label = labelled(layer, name)
                if waiting:
                    pending.append(label)
                if name not in cases:
                    orphans.append(label)
                try:
                    golden = store.load(name, pending=waiting, layer=layer)
                except GoldenError as error:
                    invalid.append(str(error))
                    continue
                if waiting:
                    continue
                read[layer, name] = golden
                if name in cases and golden.case != cases[name]:
                    stale.append(label)
                if golden.acceptance is None or not golden.acceptance.reason.strip():
                    accept = policy.invocation.command("golden", "accept")
                    invalid.append(f"{label} was never accepted: `{accept}` says why it is right")
                if why := misfiled(golden, layer, policy):
                    invalid.append(f"{label} {why}")
    # A file in a folder that is no layer is read by nobody.
    known = {store.root / layer for layer in store.layers()}
    stray = (path for path in store.root.rglob(f"*{ACCEPTED}") if path.parent not in known)
    orphans += [str(path.relative_to(store.root)) for path in stray]
    layers = {layer: store.names(layer=layer) for layer in store.layers()}
    resolved, ties = _resolved(store, layers, {golden.provenance.machine for golden in read.values()})
    claims = [claim for claim in policy.claims.values() if isinstance(claim, GoldenClaim)]
    replayed = {name for claim in claims for name in (claim.cases or cases)}
    accepted = [labelled(layer, name) for layer, names in layers.items() for name in names]
    return Survey(
        accepted=tuple(sorted(accepted)),
        pending=tuple(sorted(pending)),
        missing=tuple(sorted(name for name in cases if name not in resolved)),
        orphans=tuple(sorted(set(orphans))),
        stale=tuple(sorted(stale)),
        never_replayed=tuple(sorted(
            labelled(layer, name) for layer, names in layers.items() for name in names if name not in replayed
        )),
        invalid=(*invalid, *ties),
        tokens=sum(len(read[layer, name].token_ids) for name, layer in resolved.items() if (layer, name) in read),
        machine=store.machine,
        layers=layers,
        resolved=resolved,
    )  # fmt: skip


def _resolved(
    store: Store, layers: dict[str, tuple[str, ...]], machines: set[str]
) -> tuple[dict[str, str], list[str]]:
    """The layer of each case on this machine, and every tie on it or on a machine that something was recorded on."""
    found: dict[str, str] = {}
    ties: list[str] = []
    for name in sorted({name for names in layers.values() for name in names}):
        holding = [layer for layer, names in layers.items() if name in names]
        for machine in (store.machine, *sorted(machines - {store.machine})):
            try:
                layer = most_specific(holding, machine, name)
            except GoldenError as error:
                ties.append(str(error))
                layer = holding[0]  # there is a golden: which one is the error
            if machine == store.machine and layer is not None:
                found[name] = layer
    return found, ties
