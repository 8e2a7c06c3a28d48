"""A copy of the tree in which one fault is planted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paritygate.faults.catalogue import Edit, Fault
from paritygate.scratch import scratch
from paritygate.structure.source import project_paths


class DeadPlant(Exception):
    """A fault for which the source has no place any more; the message says which edit misses."""


@dataclass(frozen=True)
class Planted:
    """Where a copy lies, and the places that were changed in it (`file:line`)."""

    root: Path
    places: tuple[str, ...]


def _edit(root: Path, edit: Edit) -> str:
    path = root / edit.file
    if edit.copy:
        if not (root / edit.copy).is_file():
            raise DeadPlant(f"{edit.copy}: there is no such file")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / edit.copy, path)
        return f"{edit.file}:1"
    if edit.append:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        gap = "\n\n" if before else ""
        path.write_text(f"{before}{gap}{edit.append.strip(chr(10))}\n", encoding="utf-8")
        return f"{edit.file}:{before.count(chr(10)) + (3 if before else 1)}"
    if not path.is_file():
        raise DeadPlant(f"{edit.file}: there is no such file")
    text = path.read_text(encoding="utf-8")
    count = text.count(edit.find)
    if count != 1:
        raise DeadPlant(f"{edit.file}: {count} places read {edit.find!r}, one is needed")
    path.write_text(text.replace(edit.find, edit.replace), encoding="utf-8")
    return f"{edit.file}:{text[: text.index(edit.find)].count(chr(10)) + 1}"


def copy_tree(root: Path, to: Path) -> None:
    """What git tracks or would track, links and what is gone from the disk left out."""
    for name in project_paths(root):
        source, place = root / name, to / name
        if source.is_file() and not source.is_symlink():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)  # with its mode: a script of the tree may be an arm's command


def plant(root: Path, edits: Iterable[Edit]) -> tuple[str, ...]:
    """Change a copy; returns where. Raises DeadPlant, and changes nothing further, where an edit has no place."""
    return tuple(_edit(root, edit) for edit in edits)


def _commit(copy: Path) -> None:
    """Make the clean copy a commit, so that what is planted on it is a change with a base."""
    who = ["-c", "user.name=faults", "-c", "user.email=faults@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "clean"]):
        subprocess.run(["git", "-C", str(copy), *words], check=True, capture_output=True)


@contextmanager
def planted_copy(root: Path, fault: Fault | None) -> Iterator[Planted]:
    """A copy of the tree with the fault, or a clean one; gone afterwards. Raises DeadPlant."""
    with scratch("fault") as copy:
        copy_tree(root, copy)
        if fault is not None and fault.bar:
            _commit(copy)
        yield Planted(copy, plant(copy, fault.edits) if fault is not None else ())
