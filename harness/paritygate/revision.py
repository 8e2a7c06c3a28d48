"""What git says of a repository."""

from __future__ import annotations

import subprocess
from pathlib import Path


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


def told(root: Path, *words: str) -> str:
    """The same, "" where git does not say: outside a repository, for one."""
    try:
        return git(root, *words)
    except GitError:
        return ""
