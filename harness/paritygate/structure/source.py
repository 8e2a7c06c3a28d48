"""The source under test: every text file of a tree, and the Python modules among them."""

from __future__ import annotations

import ast
import codecs
import gc
import os
import re
import subprocess
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from paritygate.structure.glob import matches
from paritygate.structure.rules import Planted, StructurePolicy

MAX_FILE_BYTES = 4 << 20


class SourceError(Exception):
    """Source that cannot be read as what it claims to be; the message says where."""


@dataclass(frozen=True, eq=False)
class Module:
    """One Python file; `name` is how it is imported (`tokenline.decode.finish`). Parsed when a rule first asks."""

    name: str
    path: str
    is_package: bool
    text: str

    @property
    def package(self) -> str:
        """The package that a relative import of this module starts from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree. Raises SourceError."""
        # The collector looks at a growing tree again and again and finds nothing: parsing takes thrice as long.
        collecting = gc.isenabled()
        gc.disable()
        try:
            return ast.parse(self.text, filename=self.path)
        except SyntaxError as error:
            raise SourceError(f"{self.path}:{error.lineno}: not valid Python: {error.msg}") from None
        finally:
            if collecting:
                gc.enable()

    def mentions(self, name: str) -> bool:
        """Whether the text holds the name as a word, in code or not."""
        found = self._mentioned.get(name)
        if found is None:
            # The plain search first: it is ten times faster, and mostly says no.
            found = name in self.text and re.search(rf"\b{re.escape(name)}\b", self.text) is not None
            self._mentioned[name] = found
        return found

    @cached_property
    def has_walrus(self) -> bool:
        """Whether an expression may assign."""
        return ":=" in self.text

    @cached_property
    def _mentioned(self) -> dict[str, bool]:
        return {}


def project_paths(root: Path) -> list[str]:
    """Every file that belongs to the project: what git tracks or would track, or all of it outside git."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."],
        capture_output=True,
    )
    if listed.returncode == 0:
        return sorted(set(filter(None, listed.stdout.decode("utf-8", "surrogateescape").split("\0"))))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        links = [
            name for name in folders if Path(folder, name).is_symlink()
        ]  # listed, as git does, not followed
        found += [Path(folder, name).relative_to(root).as_posix() for name in sorted((*names, *links))]
    return found


def _decoded(raw: bytes) -> str | None:
    """The text of a file, whatever its encoding: a rule must see it. None for what is no text."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return raw.decode("utf-16", errors="replace")
    if b"\0" in raw[:8192]:
        return None
    return raw.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def _behind(root: Path, path: str) -> str:
    """The path, relative to the root, of what a link leads to; the link's own where that is somewhere else."""
    real, top = Path(os.path.realpath(root / path)), Path(os.path.realpath(root))
    return real.relative_to(top).as_posix() if real.is_relative_to(top) else path


class Tree:
    """Text by path (relative, with `/`), and the folders that Python imports from.

    What was found in a file is remembered, and shared with the trees in which another file is changed.
    """

    def __init__(
        self, files: Mapping[str, str], roots: tuple[str, ...] = ("engine", "harness"), at: str = "."
    ) -> None:
        self.files = files
        self.roots = roots
        self.at = at  # where it was read, for the commands that are printed about it
        self.modules: dict[str, Module] = {}
        for path, text in files.items():
            if path.endswith(".py"):
                self._put_module(path, text)
        self.unseen: tuple[str, ...] = ()  # links to folders of which the project lists no file
        self._changed: str | None = None
        self._memory: dict[tuple[Hashable, str], Any] = {}
        self._of_change: dict[Hashable, Any] = {}

    def _put_module(self, path: str, text: str) -> None:
        name = self.module_name(path)
        self.modules[name] = Module(name, path, path.endswith("__init__.py"), text)

    def remember(self, key: Hashable, path: str, find: Callable[[], Any]) -> Any:
        """What `find` finds in one file, found once. It must depend on the key and the file alone."""
        memory: dict[Any, Any] = self._memory
        at: Hashable = (key, path)
        if path == self._changed:
            memory, at = self._of_change, key
        if at not in memory:
            memory[at] = find()
        return memory[at]

    @classmethod
    def read(cls, root: Path, policy: StructurePolicy) -> Tree:
        """The tree on disk under `root`, without binaries and what the policy excludes.

        A file behind a link is read once: under its own path where that lies below `root`, else under the link's.
        """
        files: dict[str, str] = {}
        unseen = []
        listed = project_paths(root)
        for path in listed:
            place = root / path
            if matches(path, policy.exclude):
                continue
            if place.is_symlink():
                path = _behind(root, path)
                if place.is_dir():
                    if not any(other.startswith(f"{path}/") for other in listed) and path != ".":
                        unseen.append(place.relative_to(root).as_posix())
                    continue
            if path in files or not place.is_file() or matches(path, policy.exclude):
                continue
            if place.stat().st_size > MAX_FILE_BYTES:
                continue
            text = _decoded(place.read_bytes())
            if text is not None:
                files[path] = text
        tree = cls(files, policy.roots, str(root))
        tree.unseen = tuple(unseen)
        return tree

    def module_name(self, path: str) -> str:
        """The dotted name of a Python file: from its root folder, or from the top for files under none."""
        for root in self.roots:
            if path.startswith(f"{root}/"):
                path = path[len(root) + 1 :]
                break
        dotted = path.removesuffix(".py").replace("/", ".")
        return dotted.removesuffix(".__init__")

    def planted(self, planted: Planted) -> Tree:
        """A copy of the tree in which the violation is planted; SourceError when there is no place for it."""
        text = self.files.get(planted.file)
        if planted.append:
            changed = f"{text}\n\n{planted.append}\n" if text else f"{planted.append}\n"
        elif text is None or planted.find not in text:
            raise SourceError(
                f"{planted.file}: nothing there reads {planted.find!r}, so nothing can be planted"
            )
        else:
            changed = text.replace(planted.find, planted.replace)
        if self._changed is not None:  # what is remembered allows for one changed file
            return Tree({**self.files, planted.file: changed}, self.roots, self.at)
        other = copy(self)
        other.files = {**self.files, planted.file: changed}
        other._changed, other._of_change = planted.file, {}
        if planted.file.endswith(".py"):
            other.modules = dict(self.modules)
            other._put_module(planted.file, changed)
        return other

    def select(self, include: tuple[str, ...], exclude: tuple[str, ...] = ()) -> Iterator[str]:
        """The paths that match a glob of `include` and none of `exclude`."""
        return (path for path in self.files if matches(path, include) and not matches(path, exclude))

    def line(self, path: str, number: int) -> str:
        """One line of a file, stripped, as evidence."""
        lines = self.files[path].splitlines()
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""
