"""The faults that a repository plants: data in TOML files, one `[[fault]]` a defect that somebody shipped."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from paritygate.structure.pattern import check_expression


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change to a copy of the tree: `find` occurs exactly once in `file` and is replaced, `append` is added to it
    (the file is made when absent), or it becomes a copy of the file `copy`. Nothing in the engine knows of it."""

    file: str
    find: str = ""
    replace: str = ""
    append: str = ""
    copy: str = ""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.find, self.append, self.copy))) != 1:
            raise ValueError(f"edit of {self.file}: give one of find (with replace), append and copy")
        for name in (self.file, self.copy):
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"edit of {name}: is outside the tree: name a file below its root")


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A defect, how it is planted, and what must come of it.

    `names` is a regular expression that the sentence of a red check must match: the diagnosis names the planted cause.
    `tests` are pytest arguments, run in the copy, for a defect that no stream shows; `structure` has the rules of the
    repository judged too. `target` is the folder whose policy judges the copy, where it is another than that of
    `[faults]`. A fault that is not caught says why in `survives`; one whose room is not built says so in
    `not_applicable`, and is not planted.
    """

    id: str
    room: str
    defect: str
    seen_as: str = ""
    edits: tuple[Edit, ...] = ()
    names: str = ""
    expect: Literal["red", "inconclusive", "could not run", "green"] = "red"
    gates: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    structure: bool = False
    bar: bool = False
    target: str = ""
    survives: str = ""
    not_applicable: str = ""

    def __post_init__(self) -> None:
        if bool(self.edits) == bool(self.not_applicable):
            raise ValueError(f"fault {self.id}: give edits, or say why it is not applicable")
        if self.not_applicable:
            return
        if self.expect != "green" and not (self.names or self.survives):
            raise ValueError(f"fault {self.id}: `names` is missing: what must the diagnosis say?")
        check_expression(self.names, f"fault {self.id}: `names`")

    def says(self, *sentences: str) -> bool:
        """Whether one of the sentences names the planted cause."""
        return any(re.search(self.names, sentence) for sentence in sentences)
