"""Which commit is compared with, on real repositories, and what is checked out for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paritygate.bench.base import NoBase, choose_base, same_engine
from paritygate.bench.pairs import BenchError, base_checkout


def git(root: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(root), *settings, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(root: Path, message: str, **files: str) -> str:
    for name, text in files.items():
        path = root / "engine" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "--allow-empty", "-qm", message)
    return git(root, "rev-parse", "--short", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PARITYGATE_BASE", raising=False)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "README").write_text("hello")
    return root


def test_the_parent_is_the_base_on_the_main_branch(repository: Path) -> None:
    first = commit(repository, "one", model="a = 1")
    commit(repository, "two", model="a = 2")
    base = choose_base(repository)
    assert base.revision == first
    assert not same_engine(repository, base)


def test_head_is_the_base_under_a_changed_or_new_engine_file(repository: Path) -> None:
    commit(repository, "one", model="a = 1")
    head = commit(repository, "two", model="a = 2")
    (repository / "engine" / "extra.py").write_text("b = 1")
    base = choose_base(repository)
    assert (base.revision, same_engine(repository, base)) == (head, False)
    (repository / "engine" / "extra.py").unlink()
    (repository / "README").write_text("changed")
    assert choose_base(repository).revision != head


def test_a_branch_is_compared_with_where_it_left_main(repository: Path) -> None:
    left = commit(repository, "one", model="a = 1")
    git(repository, "checkout", "-qb", "topic")
    commit(repository, "two", model="a = 2")
    commit(repository, "three", model="a = 3")
    assert choose_base(repository).revision == left


def test_the_same_engine_is_recognised_through_other_changes(repository: Path) -> None:
    commit(repository, "one", model="a = 1")
    (repository / "README").write_text("changed")
    commit(repository, "two")
    assert same_engine(repository, choose_base(repository))


def test_a_base_can_be_asked_for_and_must_exist(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(repository, "one", model="a = 1")
    commit(repository, "two", model="a = 2")
    commit(repository, "three", model="a = 3")
    assert choose_base(repository, "HEAD~2").revision == first
    monkeypatch.setenv("PARITYGATE_BASE", "HEAD~2")
    assert choose_base(repository).revision == first
    with pytest.raises(BenchError, match="no commit nowhere"):
        choose_base(repository, "nowhere")


def test_without_an_earlier_engine_there_is_no_base(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(NoBase, match="no git checkout"):
        choose_base(repository)
    commit(repository, "readme")
    with pytest.raises(NoBase, match="no parent"):
        choose_base(repository)
    commit(repository, "engine", model="a = 1")
    with pytest.raises(NoBase, match="has no engine/"):
        choose_base(repository)


def test_a_shallow_clone_is_an_error_and_not_a_missing_base(repository: Path, tmp_path: Path) -> None:
    commit(repository, "one", model="a = 1")
    commit(repository, "two", model="a = 2")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), str(clone))
    with pytest.raises(BenchError, match="shallow"):
        choose_base(clone)


def test_the_checkout_holds_the_base_and_is_removed(repository: Path) -> None:
    first = commit(repository, "one", model="a = 1")
    commit(repository, "two", model="a = 2")
    with base_checkout(repository, first) as place:
        assert (place / "engine" / "model.py").read_text() == "a = 1"
    assert not place.exists()
    assert git(repository, "worktree", "list").count("\n") == 0
