"""Frozen violations of a rule: what is listed passes, what is new fails, and what is gone leaves the list."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from paritygate.structure.findings import Hit
from paritygate.structure.source import Tree


class BaselineError(Exception):
    """A baseline that cannot be read, or must not grow; the message says what to do."""


class Frozen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a baseline. The fingerprint is of what stands there, not of the line that it stands on."""

    path: str
    fingerprint: str
    what: str
    text: str
    reason: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What makes two lines the same violation."""
        return self.path, self.fingerprint


def frozen(hit: Hit, tree: Tree, reason: str = "") -> Frozen:
    """A violation as a baseline keeps it."""
    text = tree.line(hit.path, hit.line) if hit.path in tree.files else ""
    fingerprint = hashlib.sha256(f"{hit.what}\0{text}".encode()).hexdigest()[:16]
    return Frozen(path=hit.path, fingerprint=fingerprint, what=hit.what, text=text, reason=reason)


def read(text: str, *, at: str) -> list[Frozen]:
    """The lines of a baseline. Raises BaselineError naming the line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append(msgspec.json.decode(line, type=Frozen))
            except msgspec.MsgspecError as error:
                raise BaselineError(f"{at}:{number}: not a frozen violation: {error}") from None
    return found


def write(lines: Iterable[Frozen]) -> str:
    """The file of these lines, sorted, so that a change of it reads as what came and went."""
    ordered = sorted(lines, key=lambda line: (line.path, line.what, line.fingerprint, line.reason))
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in ordered)


@dataclass(frozen=True)
class Against:
    """Violations held against a baseline: those that are new, how many are listed, and listed ones that are gone."""

    new: list[Hit]
    listed: int
    gone: list[Frozen]


def against(violations: list[Hit], lines: list[Frozen], tree: Tree) -> Against:
    """Each line of the baseline lets one violation pass: two of the same need two lines."""
    left = Counter(line.key for line in lines)
    new = []
    for hit in violations:
        key = frozen(hit, tree).key
        if left[key] > 0:
            left[key] -= 1
        else:
            new.append(hit)
    gone = []
    for line in lines:
        if left[line.key] > 0:
            left[line.key] -= 1
            gone.append(line)
    return Against(new, len(lines) - len(gone), gone)


def refrozen(
    violations: list[Hit], lines: list[Frozen] | None, tree: Tree, *, grow: bool, reason: str
) -> list[Frozen]:
    """What the file holds next: what is still there, and what is new where the list may grow for a reason.

    `lines` None is a baseline that does not exist yet. Raises BaselineError.
    """
    if lines is None:
        return [frozen(hit, tree, reason) for hit in violations]
    found = against(violations, lines, tree)
    gone = Counter(line.key for line in found.gone)
    kept = []
    for line in lines:
        if gone[line.key] > 0:
            gone[line.key] -= 1
        else:
            kept.append(line)
    if found.new and not grow:
        raise BaselineError(
            f"{len(found.new)} violations are new, first {found.new[0]}: mend them; a baseline only shrinks, "
            "unless it is told to --grow with a --reason"
        )
    if found.new and not reason.strip():
        raise BaselineError("a baseline grows for a reason: give --reason")
    return kept + [frozen(hit, tree, reason) for hit in found.new]
