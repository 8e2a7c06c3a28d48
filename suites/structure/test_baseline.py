"""A baseline lets old violations pass, fails on new ones, and only shrinks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from paritygate.cli import app

POLICY = """\
schema = 1

[checkpoint]
name = "none"
model = "none"

[structure]
roots = []

[[structure.rules]]
name = "no sleep"
kind = "absent-pattern"
pattern = "sleep"
files = ["src/**"]
baseline = "rules/sleep.jsonl"
why = "It hides a race."
planted = { file = "src/c.rs", append = "sleep(9);" }
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.rs").write_text("fn a() {\n    sleep(1);\n    sleep(1);\n}\n")
    (tmp_path / "src" / "b.rs").write_text("fn b() { sleep(2); }\n")
    (tmp_path / "src" / "c.rs").write_text("fn c() {}\n")
    (tmp_path / "paritygate.toml").write_text(POLICY)
    return tmp_path


def structure(root: Path, *words: str) -> Result:
    where = ("--root", str(root))
    given = ["structure", *words, *where] if words else ["structure", *where]
    result = CliRunner().invoke(app, given)
    assert not isinstance(result.exception, OSError), result.exception
    return result


def said(result: Result) -> str:
    return " ".join(result.output.split())


def lines(root: Path) -> list[dict]:
    return [json.loads(line) for line in (root / "rules" / "sleep.jsonl").read_text().splitlines()]


def test_what_is_frozen_passes_and_what_is_new_fails(root: Path) -> None:
    assert structure(root).exit_code == 1
    assert "3 frozen violations (before: none)" in said(structure(root, "freeze", "no sleep"))
    assert structure(root).exit_code == 0
    assert "3 frozen violations left" in said(structure(root))
    assert [(line["path"], line["text"]) for line in lines(root)] == [
        ("src/a.rs", "sleep(1);"), ("src/a.rs", "sleep(1);"), ("src/b.rs", "fn b() { sleep(2); }"),
    ]  # fmt: skip
    (root / "src" / "c.rs").write_text("fn c() { sleep(3); }\n")
    new = structure(root)
    assert new.exit_code == 1
    assert "src/c.rs:1 reads 'fn c() { sleep(3); }'. It hides a race." in said(new)


def test_a_rule_without_its_file_says_how_to_make_it(root: Path) -> None:
    result = structure(root)
    assert result.exit_code == 1
    path = root / "rules" / "sleep.jsonl"
    assert not path.exists()
    (root / "src" / "a.rs").write_text("")
    (root / "src" / "b.rs").write_text("")
    assert f"`paritygate structure freeze 'no sleep' --root {root}` makes it" in said(structure(root))


def test_moving_a_line_changes_nothing(root: Path) -> None:
    structure(root, "freeze", "no sleep")
    (root / "src" / "b.rs").write_text("// a comment above\n\n\n  fn b() { sleep(2); }\n")
    assert structure(root).exit_code == 0


def test_one_more_of_the_same_is_new(root: Path) -> None:
    structure(root, "freeze", "no sleep")
    (root / "src" / "a.rs").write_text("fn a() {\n    sleep(1);\n    sleep(1);\n    sleep(1);\n}\n")
    assert structure(root).exit_code == 1


def test_one_that_is_gone_must_leave_the_file(root: Path) -> None:
    structure(root, "freeze", "no sleep")
    (root / "src" / "a.rs").write_text("fn a() {\n    sleep(1);\n}\n")
    gone = structure(root)
    assert gone.exit_code == 1
    assert "1 frozen violation gone" in said(gone)
    assert f"shrink it: `paritygate structure freeze 'no sleep' --root {root}`" in said(gone)
    shrunk = structure(root, "freeze", "no sleep")
    assert "2 frozen violations (before: 3)" in said(shrunk)
    assert structure(root).exit_code == 0


def test_freezing_adds_nothing_unless_told_why(root: Path) -> None:
    structure(root, "freeze", "no sleep")
    before = lines(root)
    (root / "src" / "c.rs").write_text("fn c() { sleep(3); }\n")
    refused = structure(root, "freeze", "no sleep")
    assert (refused.exit_code, lines(root)) == (2, before)
    assert "1 violations are new, first src/c.rs:1" in said(refused)
    unreasoned = structure(root, "freeze", "no sleep", "--grow")
    assert (unreasoned.exit_code, lines(root)) == (2, before)
    assert structure(root, "freeze", "no sleep", "--grow", "--reason", "until the timer is in").exit_code == 0
    (added,) = [line for line in lines(root) if line["path"] == "src/c.rs"]
    assert added["reason"] == "until the timer is in"
    assert structure(root).exit_code == 0


def test_an_empty_baseline_is_taken_away(root: Path) -> None:
    structure(root, "freeze", "no sleep")
    for name in "ab":
        (root / "src" / f"{name}.rs").write_text("")
    result = structure(root, "freeze", "no sleep")
    assert "take `baseline` out of the rule" in said(result)
    assert not (root / "rules" / "sleep.jsonl").exists()


def test_ci_never_writes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = structure(root, "freeze", "no sleep")
    assert result.exit_code == 2
    assert "CI must not freeze violations" in said(result)
    assert not (root / "rules").exists()


def test_a_broken_line_is_named(root: Path) -> None:
    structure(root, "freeze", "no sleep")
    with (root / "rules" / "sleep.jsonl").open("a") as file:
        file.write("not json\n")
    for words in ((), ("freeze", "no sleep")):
        assert "rules/sleep.jsonl:4: not a frozen violation" in said(structure(root, *words))


def test_a_rule_without_a_baseline_cannot_be_frozen(root: Path) -> None:
    (root / "paritygate.toml").write_text(POLICY.replace('baseline = "rules/sleep.jsonl"\n', ""))
    assert "has no `baseline`" in said(structure(root, "freeze", "no sleep"))
    assert "is not there" in said(structure(root, "freeze", "no nap"))
