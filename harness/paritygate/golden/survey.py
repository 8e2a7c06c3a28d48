"""What stands in the golden store against what the cases ask for, and what is replayed by no claim."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.golden.store import GoldenError, Store
from paritygate.policy import GoldenClaim, Policy


@dataclass(frozen=True)
class Survey:
    """Names of cases, each list sorted; `invalid` says what is wrong with a file."""

    accepted: tuple[str, ...]
    pending: tuple[str, ...]
    missing: tuple[str, ...]
    orphans: tuple[str, ...]
    stale: tuple[str, ...]
    never_replayed: tuple[str, ...]
    invalid: tuple[str, ...]
    tokens: int

    @property
    def faults(self) -> tuple[str, ...]:
        """Sentences; a store without any is sound."""
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
                said.append(f"{what}: {', '.join(names)}")
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


def survey(policy: Policy, root: Path) -> Survey:
    """Look at every file of the store. Raises CaseError where the cases cannot be read."""
    store = Store(root / policy.goldens.directory)
    cases = {case.name: case for case in policy.golden_cases(root)}
    accepted, pending = store.names(), store.names(pending=True)
    invalid, stale, tokens = [], [], 0
    for waiting, names in ((False, accepted), (True, pending)):
        for name in names:
            try:
                golden = store.load(name, pending=waiting)
            except GoldenError as error:
                invalid.append(str(error))
                continue
            if not waiting:
                tokens += len(golden.token_ids)
                if name in cases and golden.case != cases[name]:
                    stale.append(name)
                if golden.provenance.weights_sha256 != policy.checkpoint.sha256:
                    invalid.append(f"{name} was recorded from other weights")
    claims = [claim for claim in policy.claims.values() if isinstance(claim, GoldenClaim)]
    replayed = {name for claim in claims for name in (claim.cases or cases)}
    return Survey(
        accepted=accepted,
        pending=pending,
        missing=tuple(sorted(set(cases) - set(accepted))),
        orphans=tuple(sorted((set(accepted) | set(pending)) - set(cases))),
        stale=tuple(stale),
        never_replayed=tuple(sorted(set(accepted) - replayed)),
        invalid=tuple(invalid),
        tokens=tokens,
    )
