"""Faults: the catalogue, what is planted, how a trial is judged, and the matrix that comes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from two_cases import TOY
from typer.testing import CliRunner

from paritygate import policy as policies
from paritygate.cli import app
from paritygate.faults import gate
from paritygate.faults.catalogue import Edit, Fault
from paritygate.faults.plant import DeadPlant, plant, planted_copy
from paritygate.faults.sample import sample
from paritygate.policy.catalogue import load_catalogue
from paritygate.verdict import Outcome

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = load_catalogue(ROOT, policies.load(ROOT).faults.catalogue)


@pytest.fixture(scope="module")
def copy() -> Path:
    with planted_copy(ROOT, None) as planted:
        yield planted.root


@pytest.mark.parametrize("fault", [f for f in CATALOGUE if f.edits], ids=lambda fault: fault.id)
def test_every_fault_has_its_place_in_the_source(copy: Path, fault: Fault, tmp_path: Path) -> None:
    for edit in fault.edits:
        for name in filter(None, (edit.file, edit.copy)):
            if (copy / name).is_file():
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_bytes((copy / name).read_bytes())
    assert len(plant(tmp_path, fault.edits)) == len(fault.edits)


def test_an_edit_needs_exactly_one_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for edit in (
        Edit(file="a.py", find="x = 1", replace="x = 2"),
        Edit(file="a.py", find="y", replace="z"),
        Edit(file="b.py", find="x", replace="y"),
        Edit(file="b.py", copy="c.py"),
    ):
        with pytest.raises(DeadPlant, match=r"a\.py: [02] places|there is no such file"):
            plant(tmp_path, [edit])
    assert (tmp_path / "a.py").read_text() == "x = 1\nx = 1\n"


def test_edits_say_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    edits = [
        Edit(file="a.py", find="two", replace="2"),
        Edit(file="a.py", append="four"),
        Edit(file="new/b.py", append="five"),
        Edit(file="c.py", copy="a.py"),
    ]
    assert plant(tmp_path, edits) == ("a.py:2", "a.py:6", "new/b.py:1", "c.py:1")
    assert (tmp_path / "a.py").read_text() == "one\n2\nthree\n\n\nfour\n" == (tmp_path / "c.py").read_text()


HEAD = '[[fault]]\nid = "a"\nroom = "engine"\ndefect = "d"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"there is no \[\[fault\]\]"),
        (HEAD, "give edits, or say why"),
        (f'{HEAD}where = "x"\n', r"f\.toml:5: fault\[0\]\.where: unknown key"),
        (f'{HEAD}not_applicable = "no"\n' * 2, "two faults are called 'a'"),
        (f'{HEAD}edits = [{{ file = "x", find = "y" }}]\n', "`names` is missing"),
    ],
)
def test_a_broken_catalogue_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "f.toml").write_text(text)
    with pytest.raises(policies.PolicyError, match=says) as caught:
        load_catalogue(tmp_path, ["f.toml"])
    assert "\n" not in str(caught.value)


FAULTS = '[faults]\ncatalogue = ["f.toml"]\n'
GOOD = f'{HEAD}not_applicable = "no"\n'


@pytest.mark.parametrize(
    ("table", "text", "says"),
    [
        (
            FAULTS,
            None,
            "faults.catalogue: f.toml: No such file or directory: [faults] `catalogue` names it: write it",
        ),
        (FAULTS, "[[fault]\n", "faults.catalogue: f.toml: "),
        (FAULTS, f'{HEAD}where = "x"\n', "faults.catalogue: f.toml:5: fault[0].where: unknown key"),
        ("[faults]\n", None, "faults.catalogue: [faults] catalogue: there is no [[fault]] in it"),
        (FAULTS, f'{GOOD}target = "x"\n', "fault a: there is no x/paritygate.toml: name the folder of one"),
        (f'{FAULTS}target = "there"\n', GOOD, "faults.target: there is no there/paritygate.toml"),
    ],
)
@pytest.mark.parametrize(
    "command", [("verify", "--only", "faults"), ("verify", "--only", "identity"), ("faults",)]
)
def test_faults_that_cannot_be_read_are_refused_with_the_policy(
    repository: Path, table: str, text: str | None, says: str, command: tuple[str, ...]
) -> None:
    path = repository / "paritygate.toml"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, table]))
    if text is not None:
        (repository / "f.toml").write_text(text)
    told = CliRunner().invoke(app, [*command, "--root", str(repository)])
    assert told.exit_code == 2
    (line,) = told.output.splitlines()
    where, _, rest = line.partition(": ")
    assert says in rest
    # Of the key, or of its table where the key is not there.
    key = table.splitlines().index('target = "there"') if "target" in table else min(1, table.count("\n") - 1)
    assert where == f"paritygate.toml:{len(lines) + 1 + key}"


def test_every_fault_comes_round_in_the_sample() -> None:
    able = [fault.id for fault in CATALOGUE if not fault.not_applicable]
    rounds = -(-len(able) // 3)
    seen = [fault.id for turn in range(rounds) for fault in sample(CATALOGUE, 3, turn)]
    assert set(seen) == set(able)
    assert len(sample(CATALOGUE, 3, 7)) == 3
    assert sample(CATALOGUE, 3, 7) != sample(CATALOGUE, 3, 8)
    assert len(sample(CATALOGUE, 1000, 1)) == len(able)


POLICY = (
    TOY
    + """\
[arms.one]
kind = "command"
command = ["{python}", "engine.py", "{prompt}"]
output = "text"
timeout_s = 5.0
[arms.two]
kind = "command"
command = ["{python}", "reference.py", "{prompt}"]
output = "text"
timeout_s = 5.0
[[cases]]
name = "greeting"
max_tokens = 4
prompt = "Good day"
[claims.same]
kind = "identity"
arms = ["two", "one"]
cases = ["greeting"]
[faults]
catalogue = ["faults.toml"]
"""
)
FAULTS = """\
[[fault]]
id = "shouts"
room = "engine"
defect = "the engine shouts"
names = "differs from byte 0"
edits = [{ file = "engine.py", find = "hello", replace = "HELLO" }]

[[fault]]
id = "falls"
room = "engine"
defect = "the engine falls over"
names = "exit status 3"
expect = "could not run"
edits = [{ file = "engine.py", append = "raise SystemExit(3)" }]

[[fault]]
id = "whispers"
room = "engine"
defect = "a comment is added"
names = "anything"
edits = [{ file = "engine.py", append = "# nothing" }]

[[fault]]
id = "gone"
room = "gate"
defect = "what is to be changed is not there"
names = "anything"
edits = [{ file = "engine.py", find = "farewell", replace = "" }]

[[fault]]
id = "later"
room = "engine"
defect = "a room that is not built"
not_applicable = "the room is not built"
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    for name in ("engine.py", "reference.py"):
        (tmp_path / name).write_text("print('hello', end='')\n")
    (tmp_path / "paritygate.toml").write_text(POLICY.replace("{python}", sys.executable))
    (tmp_path / "faults.toml").write_text(FAULTS)
    return tmp_path


def test_a_matrix_of_faults(toy: Path) -> None:
    told = CliRunner().invoke(
        app,
        ["faults", "--root", str(toy), "--report", str(toy / "out"), "--markdown", str(toy / "matrix.md")],
    )
    assert told.exit_code == 1, told.output
    matrix = json.loads((toy / "out" / "faults.json").read_text())
    assert {trial["fault"]: trial["state"] for trial in matrix["trials"]} == {
        "shouts": "caught",
        "falls": "caught",
        "whispers": "survived",
        "gone": "dead",
        "later": "not applicable",
    }
    assert (matrix["caught"], matrix["tried"], matrix["named"], matrix["clean_runs"]) == (2, 4, 2, 1)
    assert matrix["clean_red"] == 0
    shouts = matrix["trials"][0]
    assert shouts["gates"] == ["identity"]
    assert shouts["places"] == ["engine.py:1"]
    assert 0 < shouts["first_red"] < 60
    assert "whispers survived" in told.output.replace("\n", " ")
    assert "gone was not tried: engine.py: 0 places read" in told.output.replace("\n", " ")
    page, text = (toy / "out" / "faults.html").read_text(), (toy / "matrix.md").read_text()
    for name in ("shouts", "falls", "whispers", "gone", "later"):
        assert name in page
        assert f"| `{name}` |" in text
    # What was planted stayed in the copies.
    assert (toy / "engine.py").read_text() == "print('hello', end='')\n"


def test_a_clean_engine_that_is_red_is_said_first(toy: Path) -> None:
    (toy / "reference.py").write_text("print('hullo', end='')\n")
    checks = list(gate.run(policies.load(toy), toy, lambda line: None))
    assert [check.name for check in checks] == ["faults/clean"]
    assert checks[0].outcome is Outcome.FAIL
    assert "the clean engine is not green" in checks[0].headline


def test_an_explained_survivor_passes_and_one_that_is_caught_must_go(toy: Path) -> None:
    text = FAULTS.replace('id = "whispers"', 'id = "whispers"\nsurvives = "a comment changes nothing"')
    text = text.replace('id = "shouts"', 'id = "shouts"\nsurvives = "nobody listens"')
    (toy / "faults.toml").write_text(text)
    told = CliRunner().invoke(app, ["faults", "--root", str(toy), "--clean", "0", "whispers"])
    assert told.exit_code == 0, told.output
    told = CliRunner().invoke(app, ["faults", "--root", str(toy), "--clean", "0", "shouts"])
    assert told.exit_code == 1
    assert "shouts is caught now, and still explained as a survivor" in told.output.replace("\n", " ")


def test_an_unknown_fault_is_one_line(toy: Path) -> None:
    told = CliRunner().invoke(app, ["faults", "--root", str(toy), "shoutz"])
    assert (told.exit_code, told.output.strip()) == (
        2,
        "no fault is called 'shoutz': there are shouts, falls, whispers, gone, later",
    )


def test_the_bar_is_the_bases(toy: Path) -> None:
    (toy / "faults.toml").write_text(
        '[[fault]]\nid = "lowered"\nroom = "gate"\ndefect = "d"\nnames = "differs from byte 0"\nbar = true\n'
        'edits = [{ file = "engine.py", find = "hello", replace = "HELLO" },'
        """ { file = "paritygate.toml", find = '"engine.py"', replace = '"reference.py"' }]\n"""
    )
    told = CliRunner().invoke(app, ["faults", "--root", str(toy), "--clean", "0"])
    assert told.exit_code == 0, told.output


@pytest.mark.parametrize("place", ["/tmp/escaped.txt", "../escaped.txt", "a/../../escaped.txt"])
def test_an_edit_stays_in_the_copy(tmp_path: Path, place: str) -> None:
    edits = f'edits = [{{ file = "{place}", append = "x" }}]\nnames = "x"\n'
    (tmp_path / "f.toml").write_text(HEAD + edits)
    with pytest.raises(policies.PolicyError, match=r"f\.toml:5: fault\[0\]\.edits\[0\]: .* outside the tree"):
        load_catalogue(tmp_path, ["f.toml"])


def test_a_script_of_the_tree_stays_a_script(tmp_path: Path) -> None:
    (tmp_path / "e.sh").write_text("#!/bin/sh\n")
    (tmp_path / "e.sh").chmod(0o755)
    with planted_copy(tmp_path, None) as planted:
        assert (planted.root / "e.sh").stat().st_mode & 0o111


def test_names_that_is_no_expression_and_a_bar_that_is_no_commit_are_one_line(toy: Path) -> None:
    (toy / "f.toml").write_text(f'{HEAD}edits = [{{ file = "x", append = "y" }}]\nnames = "("\n')
    with pytest.raises(policies.PolicyError, match=r"fault .*: `names` .* is no regular expression"):
        load_catalogue(toy, ["f.toml"])
    told = CliRunner().invoke(app, ["verify", "--root", str(ROOT), "--bar", "nope", "--only", "history"])
    assert (told.exit_code, told.output.strip()) == (
        2,
        "--bar: there is no commit 'nope' here: fetch it, or name another",
    )


def test_a_report_that_cannot_be_written_is_one_line(toy: Path) -> None:
    (toy / "out").write_text("a file")
    told = CliRunner().invoke(
        app, ["verify", "--root", str(toy), "--only", "identity", "--report", str(toy / "out")]
    )
    assert told.exit_code == 3
    assert told.output.strip().endswith("out: the report was not written: File exists")


def test_a_fault_that_is_caught_and_not_named_is_said(toy: Path) -> None:
    (toy / "faults.toml").write_text(
        FAULTS.replace('names = "differs from byte 0"', 'names = "a raised voice"')
    )
    told = CliRunner().invoke(app, ["faults", "--root", str(toy), "--clean", "0", "shouts"])
    assert told.exit_code == 1
    assert "shouts is caught, and no red check names it ('a raised voice')" in told.output.replace("\n", " ")
