"""What has not changed since it passed is not run again; whatever a result depends on makes it run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import paritygate
from paritygate import machine
from paritygate import policy as policies
from paritygate.cli import app
from paritygate.gates import reuse_key, reuse_store
from paritygate.gates.replies import REPEATS
from paritygate.gates.reuse_key import Keys
from paritygate.gates.reuse_store import Kept, ReuseStore
from paritygate.gates.run import plan_of
from paritygate.verdict import Check, Outcome, Verdict

# The program writes a line whenever it runs: what ran is counted, not believed.
ENGINE = """\
import pathlib, sys
with pathlib.Path({log!r}).open("a") as log:
    log.write(sys.argv[1] + "\\n")
from said import words
print(words, end="")
"""
POLICY = """\
schema = 1

[reuse]
sources = ["*.py"]

[checkpoint]
name = "toy"
model = "{root}/weights.bin"

[arms.one]
kind = "command"
command = ["{python}", "{root}/engine.py", "one", "{prompt}"]
output = "text"
timeout_s = 20.0

[arms.two]
kind = "command"
command = ["{python}", "{root}/tools/engine.py", "two", "{prompt}"]
output = "text"
timeout_s = 20.0

[[cases]]
name = "greeting"
max_tokens = 4
prompt = "Good day"

[claims.same]
kind = "identity"
arms = ["one", "two"]
cases = ["greeting"]
"""


EDITABLE = Keys._editable


class Repository:
    """A checkout whose two engines count how often they are asked."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root = root
        self.log = log
        (root / "tools").mkdir()
        for folder in (root, root / "tools"):
            (folder / "engine.py").write_text(ENGINE.format(log=str(log)))
            (folder / "said.py").write_text("words = 'hello'\n")
        (root / "weights.bin").write_bytes(b"weights")
        (root / "paritygate.toml").write_text(
            POLICY.replace("{python}", sys.executable).replace("{root}", str(root))
        )

    def edit(self, name: str, find: str, put: str) -> None:
        path = self.root / name
        text = path.read_text()
        assert find in text
        path.write_text(text.replace(find, put, 1))

    def verify(self, *words: str) -> tuple[Result, list[str]]:
        """The run, and which engines it asked."""
        before = self.log.read_text().splitlines() if self.log.exists() else []
        report = self.root.parent / "report"
        given = ["verify", "--only", "identity", "--root", str(self.root), "--report", str(report), *words]
        result = CliRunner().invoke(app, given)
        return result, self.log.read_text().splitlines()[len(before) :]

    def report(self) -> dict:
        return json.loads((self.root.parent / "report" / "report.json").read_bytes())


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    # What is installed in place here is this checkout, which somebody may be editing; a test of its own reads one.
    monkeypatch.setattr(Keys, "_editable", lambda self, distribution: "")
    monkeypatch.delenv("PARITYGATE_MODEL", raising=False)
    (tmp_path / "repository").mkdir()
    return Repository(tmp_path / "repository", tmp_path / "ran.log")


def test_nothing_runs_twice_while_nothing_changes_and_the_report_says_so(repository: Repository) -> None:
    first, ran = repository.verify()
    assert (first.exit_code, sorted(ran)) == (0, ["one", "two"])
    (fresh,) = repository.report()["checks"]
    again, ran = repository.verify()
    assert (again.exit_code, ran) == (0, [])
    assert "1 reused" in again.output
    assert "reused identity/same (1 check) from" in again.output
    assert "1 check passed, 1 of them reused from an earlier run" in again.output.replace("\n", " ")
    (check,) = repository.report()["checks"]
    assert (check["verdict"], check["outcome"]) == ("IDENTICAL", "pass")
    assert check["headline"].startswith(fresh["headline"] + "; reused from 20")
    evidence = dict(check["details"])
    assert evidence.pop("reused")["recorded"] <= repository.report()["started"]
    assert evidence == fresh["details"]
    assert list(repository.report()["reused"]) == ["identity/same"]


def test_fresh_runs_everything(repository: Repository) -> None:
    repository.verify()
    result, ran = repository.verify("--fresh")
    assert (result.exit_code, sorted(ran)) == (0, ["one", "two"])
    assert "reused" not in result.output


def test_without_the_table_nothing_is_reused(repository: Repository) -> None:
    repository.edit("paritygate.toml", '[reuse]\nsources = ["*.py"]\n', "")
    repository.verify()
    assert sorted(repository.verify()[1]) == ["one", "two"]
    assert not (repository.root / ".paritygate").exists()


# What is changed, and the part of the key that must say so.
PLANTED: dict[str, tuple[Callable[[Repository], None], str]] = {
    "a source file": (lambda r: r.edit("said.py", "'hello'", "'hell' + 'o'"), "sources"),
    "a new source file": (lambda r: (r.root / "new.py").write_text(""), "sources"),
    "a program outside the sources": (lambda r: r.edit("tools/engine.py", "import", "import os,"), "arms"),
    "the weights": (lambda r: (r.root / "weights.bin").write_bytes(b"Weights"), "checkpoint"),
    "an arm's option": (lambda r: r.edit("paritygate.toml", "timeout_s = 20.0", "timeout_s = 21.0"), "arms"),
    "a case's prompt": (lambda r: r.edit("paritygate.toml", "Good day", "Good night"), "cases"),
    "a case's parameter": (lambda r: r.edit("paritygate.toml", "max_tokens = 4", "max_tokens = 5"), "cases"),
    "the claim": (lambda r: r.edit("paritygate.toml", '["one", "two"]', '["two", "one"]'), "claim"),
    "the floor": (
        lambda r: r.edit("paritygate.toml", "[claims.", "[goldens]\nmargin_floor = 0.03\ndirectory = 'g'\n\n[claims."),
        "goldens",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_a_change_makes_it_run_and_is_named(repository: Repository, what: str) -> None:
    change, part = PLANTED[what]
    repository.edit("paritygate.toml", 'name = "toy"', 'name = "toy"\nsha256 = "00"')
    (repository.root / "g").mkdir()
    (repository.root / "g" / "cases.toml").write_text('[[case]]\nname = "x"\nmax_tokens = 1\nprompt = "x"\n')
    repository.verify()
    assert repository.verify()[1] == []
    change(repository)
    result, ran = repository.verify()
    assert (result.exit_code, sorted(ran)) == (0, ["one", "two"]), result.output
    notes = " ".join(repository.report()["notes"])
    assert "identity/same runs again, changed since it passed" in notes
    assert part in notes.partition("passed: ")[2].split(", ")


def test_the_environment_counts(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.edit(
        "paritygate.toml", 'sources = ["*.py"]', 'sources = ["*.py"]\nenvironment = ["MY_ENGINE_*"]'
    )
    repository.verify()
    for name in ("TOKENLINE_SYNC", "OMP_NUM_THREADS", "PYTHONPATH", "MY_ENGINE_FAST"):
        monkeypatch.setenv(name, os.environ.get(name, "") + "7")
        assert len(repository.verify()[1]) == 2, name
    monkeypatch.setenv("UNRELATED", "7")
    assert repository.verify()[1] == []


def _other_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "library" / "kernels-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 1.0\n")
    (added,) = importlib.metadata.distributions(path=[str(folder.parent)])
    every = list(importlib.metadata.distributions())
    monkeypatch.setattr(reuse_key.importlib.metadata, "distributions", lambda: [*every, added])


def _other_harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = tmp_path / "harness" / "paritygate"
    shutil.copytree(Path(paritygate.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "compare" / "identity.py").open("a") as file:
        file.write("# another comparison\n")
    monkeypatch.setattr(paritygate, "__file__", str(copy / "__init__.py"))


def _other_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    elsewhere = replace(machine.this_machine(), key="linux-x86_64-another")
    monkeypatch.setattr(reuse_key, "this_machine", lambda: elsewhere)


@pytest.mark.parametrize(
    ("part", "change"),
    [("libraries", _other_library), ("harness", _other_harness), ("machine", _other_machine)],
)
def test_what_surrounds_the_engine_counts(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str, change: Callable
) -> None:
    repository.verify()
    change(monkeypatch, tmp_path)
    assert len(repository.verify()[1]) == 2
    assert f"passed: {part}" in " ".join(repository.report()["notes"])


def test_the_source_of_what_is_installed_in_place_counts(repository: Repository, tmp_path: Path) -> None:
    source = tmp_path / "elsewhere"
    source.mkdir()
    (source / "kernels.py").write_text("x = 1\n")
    folder = tmp_path / "library" / "kernels-1.0.dist-info"
    folder.mkdir(parents=True)
    told = {"url": source.as_uri(), "dir_info": {"editable": True}}
    (folder / "direct_url.json").write_text(json.dumps(told))
    (added,) = importlib.metadata.distributions(path=[str(folder.parent)])
    keys = Keys(policies.load(repository.root), repository.root)
    before = EDITABLE(keys, added)
    (source / "kernels.py").write_text("x = 2\n")
    assert EDITABLE(keys, added) not in (before, "")
    (folder / "direct_url.json").write_text(json.dumps(told | {"dir_info": {}}))
    assert EDITABLE(keys, added) == ""
    here = {"url": repository.root.as_uri(), "dir_info": {"editable": True}}
    (folder / "direct_url.json").write_text(json.dumps(here))
    assert EDITABLE(keys, added) == "the checkout"


def test_the_bytes_of_a_golden_count(repository: Repository) -> None:
    repository.edit("paritygate.toml", 'name = "toy"', 'name = "toy"\nsha256 = "00"')
    with (repository.root / "paritygate.toml").open("a") as file:
        file.write(
            '\n[goldens]\ndirectory = "g"\n[claims.replayed]\nkind = "golden"\narms = ["one"]\ncases = []\n'
        )
    golden = repository.root / "g" / "reference" / "x.jsonl"
    golden.parent.mkdir(parents=True)
    (repository.root / "g" / "cases.toml").write_text('[[case]]\nname = "x"\nmax_tokens = 1\nprompt = "x"\n')

    def parts() -> dict[str, str]:
        policy = policies.load(repository.root)
        (unit,) = [u for u in plan_of(policy, repository.root, ("golden",)) if u.name == "golden/one"]
        return Keys(policy, repository.root).of(unit)

    golden.write_bytes(b"{}")
    before = parts()
    golden.write_bytes(b"{} ")
    after = parts()
    assert {name for name in before if before[name] != after[name]} == {"goldens"}
    repository.edit("paritygate.toml", "cases = []", 'cases = ["x"]')
    assert {name for name in after if after[name] != parts()[name]} == {"claim"}


def test_weights_behind_a_name_must_be_told(repository: Repository, tmp_path: Path) -> None:
    repository.edit("paritygate.toml", f'model = "{repository.root}/weights.bin"', 'model = "an-alias"')
    repository.verify()
    assert len(repository.verify()[1]) == 2
    assert "an-alias is no file or folder" in " ".join(repository.report()["notes"])
    folder = tmp_path / "resolved"
    repository.edit("paritygate.toml", "[reuse]\n", f'[reuse]\nweights = "{folder}"\n')
    assert len(repository.verify()[1]) == 2
    assert f"the weights are not at {folder}" in " ".join(repository.report()["notes"])
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "part-1").write_bytes(b"one")
    assert len(repository.verify()[1]) == 2
    assert repository.verify()[1] == []
    (folder / "deep" / "part-1").write_bytes(b"two")
    assert len(repository.verify()[1]) == 2


def test_a_server_by_url_is_asked_every_time(repository: Repository) -> None:
    repository.edit(
        "paritygate.toml", "[[cases]]", '[arms.far]\nkind = "http"\nurl = "http://127.0.0.1:9"\n\n[[cases]]'
    )
    repository.edit("paritygate.toml", '["one", "two"]', '["one", "far"]')
    repository.verify()
    result, ran = repository.verify()
    assert (result.exit_code, ran) == (3, ["one"])
    assert "arm far is a server by URL" in " ".join(repository.report()["notes"])


def test_only_passes_are_kept(repository: Repository) -> None:
    repository.edit("tools/said.py", "hello", "hullo")
    assert repository.verify()[0].exit_code == 1
    result, ran = repository.verify()
    assert (result.exit_code, len(ran)) == (1, 2 * (1 + REPEATS))  # each arm answers, and repeats itself
    assert "reused" not in result.output


def test_a_source_glob_that_matches_nothing_reuses_nothing(repository: Repository) -> None:
    repository.verify()
    repository.edit("paritygate.toml", '["*.py"]', '["*.py", "native/**"]')
    result, ran = repository.verify()
    assert len(ran) == 2
    assert "Nothing is reused: [reuse] sources: no file matches native/**" in result.output.replace("\n", " ")


def test_what_changes_while_it_runs_is_not_kept(repository: Repository) -> None:
    # The second engine edits a source of both as it answers: the pass belongs to no source there ever was.
    repository.edit("tools/engine.py", "print(", f"open({str(repository.root / 'new.py')!r}, 'w')\nprint(")
    assert repository.verify()[0].exit_code == 0
    assert "something changed while it ran" in " ".join(repository.report()["notes"])
    assert len(repository.verify()[1]) == 2


def kept_files(repository: Repository) -> list[Path]:
    return list((repository.root / ".paritygate" / "reuse").glob("*.json"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda raw: raw[: len(raw) // 2], "is not read"),
        (lambda raw: b"", "is not read"),
        (lambda raw: raw.replace(b"the text agrees", b"the text differs"), "is damaged"),
        (lambda raw: raw.replace(b'"unit":"identity/same"', b'"unit":"identity/game"'), "is damaged"),
    ],
)
def test_a_damaged_entry_is_ignored_with_a_line(
    repository: Repository, damage: Callable[[bytes], bytes], said: str
) -> None:
    repository.verify()
    (path,) = kept_files(repository)
    raw = path.read_bytes()
    assert damage(raw) != raw
    path.write_bytes(damage(raw))
    result, ran = repository.verify()
    assert (result.exit_code, len(ran)) == (0, 2)
    assert said in " ".join(repository.report()["notes"])
    assert repository.verify()[1] == []  # and is replaced by a whole one


def kept(unit: str, number: int, outcome: Outcome = Outcome.PASS, name: str = "") -> Kept:
    check = Check("identity", name or f"{unit}/two/greeting", outcome, Verdict.IDENTICAL, "same")
    return Kept(schema=1, unit=unit, parts={"sources": str(number)}, recorded="2026-01-02T03:04:05+00:00",
                commit="abcdef0123", dirty=False, checks=(check,))  # fmt: skip


def test_an_entry_that_is_no_pass_is_not_used(tmp_path: Path) -> None:
    store = ReuseStore(tmp_path)
    store.keep(kept("identity/same", 1, Outcome.FAIL))
    assert store.load("identity/same", {"sources": "1"}) is None
    assert "holds what is no pass" in store.notes[0]


def test_a_unit_that_lost_a_check_is_not_whole(repository: Repository) -> None:
    (unit,) = plan_of(policies.load(repository.root), repository.root, ("identity",))
    good = kept("identity/same", 1).checks
    assert unit.complete(good)
    assert not unit.complete(())
    assert not unit.complete(kept("identity/same", 1, name="identity/same/two/farewell").checks)
    assert not unit.complete((*good, *kept("identity/other", 1).checks))


def test_the_store_is_bounded_and_drops_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse_store, "MAX_FILES", 3)
    store = ReuseStore(tmp_path)
    for number in range(5):
        store.keep(kept("identity/same", number))
        path = store._path("identity/same", {"sources": str(number)})
        os.utime(path, (number, number))
    there = [number for number in range(5) if store.load("identity/same", {"sources": str(number)})]
    assert there == [2, 3, 4]
    monkeypatch.setattr(reuse_store, "MAX_BYTES", 1)
    store.keep(kept("identity/same", 9))
    assert len(list(store.directory.glob("*.json"))) == 1  # never less than the newest
    assert store.load("identity/same", {"sources": "9"}) is not None


def test_a_disk_that_takes_nothing_costs_a_rerun_only(repository: Repository) -> None:
    (repository.root / ".paritygate").write_text("a file where a folder belongs")
    result, ran = repository.verify()
    assert (result.exit_code, len(ran)) == (0, 2)
    assert "identity/same was not kept for reuse" in " ".join(repository.report()["notes"])


def test_a_reuse_table_without_sources_is_refused(repository: Repository) -> None:
    repository.edit("paritygate.toml", 'sources = ["*.py"]', "")
    repository.log.write_text("")
    result, _ = repository.verify()
    assert result.exit_code == 2
    assert "paritygate.toml:3: reuse: `sources` is missing" in result.output
