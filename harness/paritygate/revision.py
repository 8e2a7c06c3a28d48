"""What git says of a repository."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from paritygate.digest import file_digest


class GitError(Exception):
    """Git refused; the message has its own last words."""


def raw(root: Path, *words: str) -> bytes:
    """What git prints. Raises GitError."""
    finished = subprocess.run(["git", "-C", str(root), *words], capture_output=True)
    if finished.returncode:
        said = finished.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(f"git {words[0]}: {said[-1] if said else finished.returncode}")
    return finished.stdout


def git(root: Path, *words: str) -> str:
    """The same as text, stripped. Raises GitError."""
    return raw(root, *words).decode(errors="replace").strip()


def uncommitted(root: Path) -> str:
    """A digest of all that differs from the commit, or of every file where there is no commit; "" for nothing."""
    try:
        changed = raw(root, "diff", "HEAD", "--binary")
        others = raw(root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
        paths = [root / os.fsdecode(path) for path in others if path]
    except GitError:
        changed, paths = b"", [path for path in root.rglob("*") if not _hidden(path.relative_to(root))]
    files = [(str(path.relative_to(root)), file_digest(path)) for path in sorted(paths) if path.is_file()]
    return (
        hashlib.sha256(changed + repr(files).encode("utf-8", "surrogateescape")).hexdigest()
        if changed or files
        else ""
    )


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def told(root: Path, *words: str) -> str:
    """The same, "" where git does not say: outside a repository, for one."""
    try:
        return git(root, *words)
    except GitError:
        return ""
