"""The source under test: every text file of a tree, and the Python modules among them."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from paritygate.structure.glob import matches
from paritygate.structure.rules import Planted, StructurePolicy

MAX_FILE_BYTES = 4 << 20


class SourceError(Exception):
    """Source that cannot be read as what it claims to be; the message says where."""


@dataclass(frozen=True)
class Module:
    """One Python file; `name` is how it is imported (`tokenline.decode.finish`)."""

    name: str
    path: str
    is_package: bool
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that a relative import of this module starts from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


@lru_cache(maxsize=4096)
def _parse(path: str, text: str) -> ast.Module:
    try:
        return ast.parse(text, filename=path)
    except SyntaxError as error:
        raise SourceError(f"{path}:{error.lineno}: not valid Python: {error.msg}") from None


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
        found += [Path(folder, name).relative_to(root).as_posix() for name in sorted(names)]
    return found


@dataclass(frozen=True)
class Tree:
    """Text by path (relative, with `/`), and the folders that Python imports from."""

    files: Mapping[str, str]
    roots: tuple[str, ...] = ("engine", "harness")
    modules: Mapping[str, Module] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        modules: dict[str, Module] = {}
        for path, text in self.files.items():
            if path.endswith(".py"):
                name = self.module_name(path)
                modules[name] = Module(name, path, path.endswith("__init__.py"), _parse(path, text))
        object.__setattr__(self, "modules", modules)

    @classmethod
    def read(cls, root: Path, policy: StructurePolicy) -> Tree:
        """The tree on disk under `root`, without binaries, links and what the policy excludes."""
        files = {}
        for path in project_paths(root):
            place = root / path
            if place.is_symlink() or not place.is_file() or matches(path, policy.exclude):
                continue
            if place.stat().st_size > MAX_FILE_BYTES:
                continue
            try:
                files[path] = place.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
        return cls(files, policy.roots)

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
        return replace(self, files={**self.files, planted.file: changed})

    def select(self, include: tuple[str, ...], exclude: tuple[str, ...] = ()) -> Iterator[str]:
        """The paths that match a glob of `include` and none of `exclude`."""
        return (path for path in self.files if matches(path, include) and not matches(path, exclude))

    def line(self, path: str, number: int) -> str:
        """One line of a file, stripped, as evidence."""
        lines = self.files[path].splitlines()
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""
