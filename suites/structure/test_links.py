"""What lies behind a link is judged, once, or named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from paritygate.structure.gate import check
from paritygate.structure.rules import StructurePolicy
from paritygate.verdict import Check, Outcome

RULE = {
    "kind": "absent-pattern", "name": "no eval", "why": "Because.", "pattern": r"\beval\(",
    "files": ["src/**", "lib/**"],
    "planted": {"file": "src/a.py", "append": "eval('1')"},
}  # fmt: skip


@pytest.fixture(params=[True, False], ids=["git", "no git"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "src" / "a.py").write_text("x = 1\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "bad.py").write_text("\neval('2')\n")
    if request.param:
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def judged(root: Path, **policy: object) -> list[Check]:
    rules = msgspec.convert({"rules": [RULE], "roots": ["src"], **policy}, StructurePolicy)
    return list(check(rules, root, lambda line: None))


def violations(root: Path) -> list[tuple[str, int]]:
    (made,) = judged(root)
    return [(hit["path"], hit["line"]) for hit in made.details["violations"]]


def test_a_linked_file_of_the_project_is_judged_once_under_its_own_path(root: Path) -> None:
    (root / "lib" / "bad.py").write_text("eval('1')\n")
    (root / "src" / "b.py").symlink_to(root / "lib" / "bad.py")
    (root / "src" / "c.py").symlink_to("../lib/bad.py")
    assert violations(root) == [("lib/bad.py", 1)]


def test_a_linked_file_from_elsewhere_is_judged_under_the_links_path(root: Path) -> None:
    (root / "src" / "b.py").symlink_to(root.parent / "outside" / "bad.py")
    assert violations(root) == [("src/b.py", 2)]


def test_a_linked_file_that_the_project_does_not_list_is_judged(root: Path) -> None:
    (root / ".gitignore").write_text("lib/\n")
    (root / "lib" / "bad.py").write_text("eval('1')\n")
    (root / "src" / "b.py").symlink_to("../lib/bad.py")
    assert violations(root) == [("lib/bad.py", 1)]


def test_a_link_to_a_folder_of_the_project_adds_nothing(root: Path) -> None:
    (root / "lib" / "bad.py").write_text("eval('1')\n")
    (root / "src" / "lib").symlink_to("../lib")
    (root / "src" / "all").symlink_to("..")
    (root / "src" / "circle").symlink_to("circle")
    (root / "src" / "gone").symlink_to("nowhere")
    assert violations(root) == [("lib/bad.py", 1)]


def test_a_link_to_a_folder_that_no_rule_sees_is_named(root: Path) -> None:
    (root / "src" / "vendor").symlink_to(root.parent / "outside")
    link, rule = judged(root)
    assert (link.name, link.outcome) == ("structure/src/vendor", Outcome.COULD_NOT_RUN)
    assert "src/vendor is a link to a folder of which the project lists no file" in link.headline
    assert rule.outcome is Outcome.PASS
    (rule,) = judged(root, exclude=["src/vendor"])
    assert rule.outcome is Outcome.PASS
