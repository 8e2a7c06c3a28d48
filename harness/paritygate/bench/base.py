"""Which commit this checkout is compared with, and whether there is anything to compare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from paritygate.bench.pairs import BenchError, git

MAIN_BRANCHES = ("origin/main", "main", "origin/master", "master")
ENGINE = "engine"


@dataclass(frozen=True)
class Base:
    """The commit compared with, abbreviated, and why it is the one."""

    revision: str
    why: str


class NoBase(Exception):
    """There is no earlier engine to compare with: a first commit, or no git at all."""


def _commit(root: Path, revision: str) -> str | None:
    try:
        return git(root, "rev-parse", "--verify", "--quiet", "--short", f"{revision}^{{commit}}")
    except BenchError:
        return None


def choose_base(root: Path, wanted: str = "") -> Base:
    """The base: as asked for, HEAD under a changed engine, the branch point, or HEAD's parent.

    Raises NoBase when there is none, BenchError when the one asked for, or the history, is not here.
    """
    wanted = wanted or os.environ.get("PARITYGATE_BASE", "")
    if wanted and not wanted.strip("0"):
        wanted = ""  # how GitHub spells "there was no commit before this push"
    head = _commit(root, "HEAD")
    if head is None:
        raise NoBase("this is no git checkout, or one without a commit")
    if wanted:
        found = _commit(root, wanted)
        if found is None:
            raise BenchError(f"there is no commit {wanted} here: fetch it, or give another base")
        return _with_engine(root, Base(found, f"asked for as {wanted}"))
    if git(root, "status", "--porcelain", "--", ENGINE):
        return _with_engine(root, Base(head, "the commit under the uncommitted changes"))
    for branch in MAIN_BRANCHES:
        if _commit(root, branch) is None:
            continue
        try:
            point = git(root, "merge-base", "HEAD", branch)
        except BenchError:
            continue  # no common history with that branch
        if _commit(root, point) != head:
            return _with_engine(root, Base(_commit(root, point) or point, f"where this branch left {branch}"))
    parent = _commit(root, "HEAD~1")
    if parent is None:
        if git(root, "rev-parse", "--is-shallow-repository") == "true":
            raise BenchError("the clone is shallow, HEAD's parent is not here: fetch the whole history")
        raise NoBase("HEAD has no parent")
    return _with_engine(root, Base(parent, "HEAD's parent"))


def _with_engine(root: Path, base: Base) -> Base:
    if not git(root, "ls-tree", base.revision, f"{ENGINE}/"):
        raise NoBase(f"{base.revision} ({base.why}) has no {ENGINE}/")
    return base


def same_engine(root: Path, base: Base) -> bool:
    """Whether `engine/`, with uncommitted and untracked files, is byte for byte the base's."""
    changed = git(root, "diff", "--name-only", base.revision, "--", ENGINE)
    untracked = git(root, "ls-files", "--others", "--exclude-standard", "--", ENGINE)
    return not changed and not untracked
