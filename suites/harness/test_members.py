"""Folders with a policy of their own: their gates run, their reds are told by name, and nothing passes unseen."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import Result
from two_cases import HEAD
from typer.testing import CliRunner

from paritygate.cli import app

ENGINE = "import sys, time\n{before}\nprint({word!r}, end='')\n"
ARMS = """
[arms.one]
kind = "command"
command = ["{python}", "one.py", "{{prompt}}"]
output = "text"
timeout_s = 20.0
[arms.two]
kind = "command"
command = ["{python}", "two.py", "{{prompt}}"]
output = "text"
timeout_s = 20.0
[claims.same]
kind = "identity"
arms = ["one", "two"]
cases = ["greeting", "farewell"]
"""
ROOT = """\
schema = 1
[checkpoint]
name = "none"
model = "none"
[members]
roots = ["models/*"]
"""


def member(root: Path, name: str, one: str = "yes", two: str = "yes", before: str = "") -> None:
    folder = root / "models" / name
    folder.mkdir(parents=True)
    policy = HEAD + ARMS.format(python=sys.executable).replace('"one.py"', f'"{folder}/one.py"')
    (folder / "paritygate.toml").write_text(policy.replace('"two.py"', f'"{folder}/two.py"'))
    for arm, word in (("one", one), ("two", two)):
        (folder / f"{arm}.py").write_text(ENGINE.format(word=word, before=before))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARITYGATE_MODEL", "/not/for/members")
    root = tmp_path / "repository"
    root.mkdir()
    (root / "paritygate.toml").write_text(ROOT)
    return root


def verify(root: Path, *words: str) -> tuple[Result, dict[str, dict]]:
    report = root.parent / "report"
    given = ["verify", "--tier", "fast", "--root", str(root), "--report", str(report), *words]
    result = CliRunner().invoke(app, given)
    if result.exit_code == 2:
        return result, {}
    return result, {
        check["name"]: check for check in json.loads((report / "report.json").read_bytes())["checks"]
    }


def test_a_member_that_passes_is_one_check_and_a_red_is_told_by_its_own_name(root: Path) -> None:
    member(root, "alpha")
    member(root, "beta", two="no")
    result, checks = verify(root)
    assert result.exit_code == 1
    assert checks["members/models/alpha/gates"]["outcome"] == "pass"
    assert "2 checks passed in" in checks["members/models/alpha/gates"]["headline"]
    assert "2 of 2 checks did not pass" in checks["members/models/beta/gates"]["headline"]
    red = checks["members/models/beta/identity/same/two/greeting"]
    assert (red["outcome"], red["verdict"]) == ("fail", "DIVERGED")
    assert "'yes'" in red["headline"] or "yes" in str(red["details"])
    assert len(checks) == 4


def test_a_member_that_cannot_run_or_hangs_does_not_pass(root: Path) -> None:
    member(root, "broken")
    policy = root / "models" / "broken" / "paritygate.toml"
    policy.write_text(policy.read_text().replace("[claims.same]", "[clams.same]"))
    member(root, "hung", before="time.sleep(60)")
    text = (root / "paritygate.toml").read_text()
    (root / "paritygate.toml").write_text(text + "timeout_s = 6.0\n")
    result, checks = verify(root)
    assert result.exit_code == 3
    assert set(checks) == {"members/models/broken/gates", "members/models/hung/gates"}
    assert all(check["outcome"] == "could not run" for check in checks.values())
    assert "clams" in checks["members/models/broken/gates"]["headline"]
    assert "did not end within 6 s" in checks["members/models/hung/gates"]["headline"]


@pytest.mark.parametrize(
    ("roots", "why"),
    [
        ('["nothing/*"]', "no folder nothing/* holds a paritygate.toml"),
        ('["."]', "is this policy itself"),
        ("[]", "`roots` is missing"),
    ],
)
def test_members_that_are_none_are_refused(root: Path, roots: str, why: str) -> None:
    path = root / "paritygate.toml"
    path.write_text(path.read_text().replace('["models/*"]', roots))
    result, _ = verify(root)
    assert result.exit_code == 2
    assert why in " ".join(result.output.split())


def test_shards_share_the_members(root: Path) -> None:
    for name in ("alpha", "beta", "gamma"):
        member(root, name)
    seen = [set(verify(root, "--shard", f"{index}/2")[1]) for index in (1, 2)]
    assert seen[0] | seen[1] == {f"members/models/{name}/gates" for name in ("alpha", "beta", "gamma")}
    assert not seen[0] & seen[1]
    assert all(seen)


def test_a_member_is_reused_until_one_of_its_files_changes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARITYGATE_MODEL")
    for name in ("alpha", "beta"):
        member(root, name)
    (root / "weights").write_text("w")
    path = root / "paritygate.toml"
    path.write_text(
        path.read_text().replace('model = "none"', 'model = "weights"') + '[reuse]\nsources = ["weights"]\n'
    )
    verify(root)
    _, again = verify(root)
    assert all("reused" in check["headline"] for check in again.values())
    (root / "models" / "beta" / "two.py").write_text("print('no', end='')")
    result, changed = verify(root)
    assert result.exit_code == 1
    assert "reused" in changed["members/models/alpha/gates"]["headline"]
    assert changed["members/models/beta/gates"]["outcome"] == "fail"


def test_programs_run_where_the_policy_lies_whoever_runs_the_gates_from_wherever(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member(root, "alpha")
    policy = root / "models" / "alpha" / "paritygate.toml"
    folder = root / "models" / "alpha"
    policy.write_text(policy.read_text().replace(f"{folder}/", ""))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "two.py").write_text("print('another engine', end='')")
    monkeypatch.chdir(elsewhere)
    result, checks = verify(root)
    assert result.exit_code == 0, result.output
    assert checks["members/models/alpha/gates"]["outcome"] == "pass"
    alone = CliRunner().invoke(app, ["verify", "--root", str(folder)])
    assert alone.exit_code in (0, 3), alone.output


def test_a_members_check_is_replayed_by_the_command_that_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member(root, "beta", two="no")
    monkeypatch.delenv("PARITYGATE_MODEL")
    words = ["replay", "members/models/beta/identity/same/two/greeting", "--root", str(root)]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 2
    again = " ".join(told.output.split()).partition("own check: paritygate ")[2].split()
    assert again == ["replay", "identity/same/two/greeting", "--root", f"{root}/models/beta"]
    assert CliRunner().invoke(app, again).exit_code == 1


def test_a_member_that_tests_nothing_fails(root: Path) -> None:
    member(root, "idle")
    policy = root / "models" / "idle" / "paritygate.toml"
    policy.write_text(policy.read_text().partition("[claims.same]")[0])
    result, checks = verify(root)
    assert result.exit_code in (1, 3)
    assert checks["members/models/idle/gates"]["outcome"] != "pass"
