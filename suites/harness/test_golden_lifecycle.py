"""Layers, review, rejection and recording: what each step changes, and above all what it leaves alone."""

from __future__ import annotations

import os
import pty
import resource
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hand_made_goldens import CASE, POLICY, REASON, answer, golden
from typer.testing import CliRunner, Result

from paritygate import policy as policies
from paritygate.case import Case
from paritygate.cli import app
from paritygate.gates import golden as golden_gate
from paritygate.golden import record as recording
from paritygate.golden.admission import NotAdmitted, admit
from paritygate.golden.layers import layer_of, most_specific, specificity
from paritygate.golden.oracles import OracleAnswer
from paritygate.golden.provenance import changes
from paritygate.golden.review import pressed
from paritygate.golden.store import Golden, GoldenError, OracleRun, Store, decode, encode
from paritygate.golden.survey import survey
from paritygate.machine import this_machine
from paritygate.stream import Position, TopToken

HERE = this_machine().key
EPYC = "linux-x86_64-amd-epyc-9b14"


@pytest.fixture(autouse=True)
def desk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PARITYGATE_MODEL", raising=False)


def paritygate(*words: str | Path, keys: str = "") -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=keys)


def accepted(store: Store, made: Golden, layer: str = "reference") -> None:
    store.write_pending(made, layer)
    store.accept(made.case.name, REASON, layer)


def named(name: str) -> Case:
    return msgspec.structs.replace(CASE, name=name)


def said(store: Store) -> tuple[int, ...]:
    return store.load("plain-one").token_ids


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


# Layers


def test_the_most_specific_layer_that_matches_gives_the_golden(tmp_path: Path) -> None:
    layers = {
        "reference": (7, 8), "machines/linux-*": (9, 8), "machines/linux-x86_64-amd-*": (10, 8),
        f"machines/{EPYC}": (11, 8), "machines/darwin-*": (12, 8),
    }  # fmt: skip
    for layer, ids in layers.items():
        accepted(Store(tmp_path), golden(machine=EPYC, ids=ids), layer)
    for machine, ids in (
        (EPYC, (11, 8)), ("linux-x86_64-amd-ryzen", (10, 8)), ("linux-aarch64-graviton", (9, 8)),
        ("darwin-arm64-apple-m4", (12, 8)), ("windows-amd64-x", (7, 8)),
    ):  # fmt: skip
        assert said(Store(tmp_path, machine)) == ids, machine
    # A layer that does not hold the case does not hide it.
    assert Store(tmp_path, EPYC).resolved("plain-two") is None


def test_an_exact_key_beats_a_longer_glob() -> None:
    assert specificity("machines/a-b") > specificity("machines/a-b*") > specificity("machines/a*")
    assert specificity("machines/a-[bc]") == specificity("machines/a-?")
    assert specificity("machines/*") > specificity("reference")


def test_a_tie_is_an_error_that_names_both(repository: Path) -> None:
    store = Store(repository / "golden", EPYC)
    for layer in ("machines/linux-*-amd-*", "machines/linux-x86_*64-*"):
        accepted(store, golden(machine=EPYC), layer)
    assert specificity("machines/linux-*-amd-*") < specificity("machines/linux-x86_*64-*")
    assert store.resolved("plain-one") == "machines/linux-x86_*64-*"
    accepted(store, golden(machine=EPYC), "machines/linux-x86_64*-*")
    with pytest.raises(GoldenError, match="equally specific") as told:
        store.load("plain-one")
    assert "machines/linux-x86_*64-*" in str(told.value)
    assert "machines/linux-x86_64*-*" in str(told.value)
    # Whoever surveys the store, on whatever machine, is told: somebody recorded on a machine with the tie.
    assert any("equally specific" in fault for fault in survey(policies.load(repository), repository).faults)
    assert most_specific(["machines/a?", "machines/a*"], "b", "x") is None


def test_a_tie_fails_the_gate(repository: Path) -> None:
    path = repository / "paritygate.toml"
    more = '\n[claims.golden]\nkind = "golden"\narms = ["fake"]\n'
    path.write_text(path.read_text() + more)
    store = Store(repository / "golden")
    for layer in (f"machines/{HERE[:-1]}?", f"machines/{HERE[:-1]}*"):
        accepted(store, golden(machine=HERE), layer)
    loaded = policies.load(repository)
    checks = [
        golden_gate.store_check(loaded, repository),
        *golden_gate.run(loaded, repository, lambda line: None),
    ]
    assert [str(check.outcome) for check in checks] == ["fail", "fail"]
    for check in checks:
        assert "equally specific" in check.headline


def test_the_survey_covers_every_layer(repository: Path) -> None:
    store = Store(repository / "golden")
    accepted(store, golden())
    for layer, made in (
        ("machines/windows-*", golden(machine="linux-1")),
        ("machines/linux-*", golden(named("plain-gone"), machine="linux-1")),
    ):
        accepted(store, made, layer)
    stray = repository / "golden" / "machine" / "linux-1"
    stray.mkdir(parents=True)
    (stray / "plain-one.jsonl").write_bytes(encode(golden()))
    found = survey(policies.load(repository), repository)
    assert found.orphans == ("machine/linux-1/plain-one.jsonl", "machines/linux-*/plain-gone")
    assert "machines/linux-*/plain-gone" in found.never_replayed
    assert found.invalid == (
        "machines/windows-*/plain-one was recorded on linux-1, for which its layer does not hold",
    )
    assert found.missing == ()
    assert found.layers["machines/linux-*"] == ("plain-gone",)


def test_a_case_that_only_another_machine_has_is_missing_here(repository: Path) -> None:
    store = Store(repository / "golden")
    accepted(store, golden(machine="plan9-mips-x"), "machines/plan9-*")
    assert survey(policies.load(repository), repository).missing == ("plain-one",)


def test_status_says_which_layer_a_golden_came_from(repository: Path) -> None:
    store = Store(repository / "golden")
    accepted(store, golden())
    accepted(store, golden(machine=HERE), f"machines/{HERE}")
    said = paritygate("golden", "status", "--root", repository).output
    assert f"this machine is {HERE}" in said
    assert "reference: 1 accepted, 0 of them hold here (overridden: plain-one)" in said
    assert f"machines/{HERE}: 1 accepted, 1 of them hold here (plain-one)" in said


@pytest.mark.parametrize("key", ["", "..", "../x", "a b", ".hidden", "machines/../x"])
def test_what_is_no_machine_key_is_refused(key: str) -> None:
    with pytest.raises(GoldenError, match="no machine key"):
        layer_of(key)


# Review


def waiting(repository: Path) -> Store:
    """Three pending: one new, one with another answer, one whose provenance alone has changed."""
    store = Store(repository / "golden")
    accepted(store, golden(named("plain-b"), ids=(7, 8)))
    accepted(store, golden(named("plain-c")))
    store.write_pending(golden(named("plain-a")))
    store.write_pending(golden(named("plain-b"), ids=(7, 9)))
    store.write_pending(golden(named("plain-c"), tokenizer_hash="t2", versions={"torch": "3"}))
    return store


def test_review_goes_through_what_is_pending(repository: Path) -> None:
    store = waiting(repository)
    old = store.path("plain-b").read_bytes()
    told = paritygate("golden", "review", "--root", repository, keys="a\nread it twice\nr\ns\n")
    assert told.exit_code == 0, told.output
    assert "1 accepted, 1 rejected, 1 still pending" in told.output
    assert store.names(pending=True) == ("plain-c",)
    assert store.load("plain-a").acceptance.reason == "read it twice"
    assert store.path("plain-b").read_bytes() == old


def test_review_shows_the_difference_token_by_token(repository: Path) -> None:
    waiting(repository)
    said = paritygate("golden", "review", "plain-b", "--root", repository, keys="q\n").output
    assert "first differs at token 1: 't9' (9) where 't8' (8) is expected" in said
    assert "after     'Onet7'" in said  # the prompt and the tokens before the difference
    assert "reference  't8' (8)   top-2: 't8' (8) -0.1000   gap: 0.5" in said
    assert "candidate  't9' (9)   top-2: 't9' (9) -0.1000   gap: 0.5" in said
    assert "- 't8'  [8]" in said
    assert "+ 't9'  [9]" in said


def test_review_shows_where_the_text_alone_differs(repository: Path) -> None:
    """The same tokens, one of them spelled otherwise: the place is a byte."""
    store = Store(repository / "golden")
    accepted(store, golden(named("plain-b"), text="t7t8"))
    other = tuple(
        Position(token_id=i, token=text, logprob=-0.1, top=(TopToken(i, text, -0.1),), margin=0.5)
        for i, text in ((7, "t7"), (8, "tX"))
    )
    store.write_pending(golden(named("plain-b"), text="t7tX", positions=other))
    told = paritygate("golden", "review", "plain-b", "--root", repository, keys="q\n")
    assert told.exit_code == 0, told.output
    assert "first difference at byte 3" in told.output
    assert "after     'Onet7t'" in told.output
    assert "candidate  'tX' (8)" in told.output


def test_a_change_of_provenance_shows_as_a_diff(repository: Path) -> None:
    waiting(repository)
    for command in (("review", "plain-c"), ("status",)):
        said = paritygate("golden", *command, "--root", repository, keys="q\n").output
        assert "identical" in said
        assert "- tokenizer_hash: t\n" in said
        assert "+ tokenizer_hash: t2\n" in said
        assert "+ mlx-lm (2 threads).versions.torch: 3\n" in said
        assert "- mlx-lm (2 threads).versions.mlx-lm: 1\n" in said


def test_provenance_says_who_how_often_and_how_sure() -> None:
    made = golden()
    assert {run.min_margin for run in made.provenance.runs} == {0.5}
    assert {run.repeats for run in made.provenance.runs} == {1}
    assert changes(made, made) == []
    surer = golden(margin=0.75)
    names = {name for name, _, _ in changes(made, surer)}
    assert names == {"min_margin", *(f"{o} ({t} threads).min_margin" for o in POLICY.oracles for t in (1, 2))}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("review",), "accept or reject a golden"),
        (("accept", "--reason", "read"), "accept a golden"),
        (("reject", "plain-a"), "reject a golden"),
        # Before it looks for the weights, which are not there.
        (("record",), "record a golden"),
    ],
)
def test_ci_is_refused_before_it_is_asked_anything(
    repository: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], what: str
) -> None:
    waiting(repository)
    monkeypatch.setenv("CI", "true")
    before = {path: path.read_bytes() for path in repository.rglob("*.jsonl")}
    told = paritygate("golden", *words, "--root", repository, keys="a\nread it\na\nread it\na\nread it\n")
    assert told.exit_code == 2
    said = f"CI is set: CI must not {what}; do it at your desk and commit the file"
    assert told.output.splitlines() == [said]
    assert {path: path.read_bytes() for path in repository.rglob("*.jsonl")} == before


@pytest.mark.parametrize("keys", ["q\n", "", "a\n"])
def test_quitting_leaves_everything(repository: Path, keys: str) -> None:
    waiting(repository)
    before = files(repository / "golden")
    told = paritygate("golden", "review", "--root", repository, keys=keys)
    assert (told.exit_code, "3 still pending" in told.output) == (0, True)
    assert files(repository / "golden") == before


def test_nothing_is_accepted_without_a_reason(repository: Path) -> None:
    store = waiting(repository)
    told = paritygate("golden", "review", "plain-a", "--root", repository, keys="a\n\n\nx\ns\n")
    assert "give one, or press another key" in told.output
    assert store.names(pending=True) == ("plain-a", "plain-b", "plain-c")


def test_a_pending_file_that_cannot_be_read_can_only_be_rejected_or_left(repository: Path) -> None:
    store = waiting(repository)
    path = store.path("plain-a", pending=True)
    path.write_bytes(path.read_bytes()[:-30])
    told = paritygate("golden", "review", "plain-a", "--root", repository, keys="a\nr\n")
    assert "[a]ccept" not in told.output
    assert "0 accepted, 1 rejected" in told.output
    assert not path.exists()


def test_a_terminal_is_asked_for_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    lines = termios.tcgetattr(slave)[3]

    def types(key: bytes) -> None:
        deadline = time.monotonic() + 5
        # No newline is sent: the terminal must have been told to hand over single keys.
        while termios.tcgetattr(slave)[3] & termios.ICANON and time.monotonic() < deadline:
            time.sleep(0.001)
        os.write(master, key if not termios.tcgetattr(slave)[3] & termios.ICANON else b"\nnot asked\n")

    with os.fdopen(slave, "r") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        for key, answer in ((b"a", "a"), (b"r", "r"), (b"\x04", None)):
            typist = threading.Thread(target=types, args=(key,))
            typist.start()
            assert pressed("?") == answer
            typist.join()
        assert termios.tcgetattr(slave)[3] == lines  # as it was found
    os.close(master)


def test_reject_removes_the_pending_file_and_nothing_else(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(repository)
    before = files(repository / "golden")
    told = paritygate("golden", "reject", "plain-b", "--root", repository)
    assert told.exit_code == 0, told.output
    assert before.keys() - files(repository / "golden").keys() == {"reference/plain-b.pending.jsonl"}
    again = paritygate("golden", "reject", "plain-b", "--root", repository)
    assert (again.exit_code, "plain-b is not pending: record it first" in again.output) == (2, True)
    monkeypatch.setenv("CI", "true")
    told = paritygate("golden", "reject", "plain-c", "--root", repository)
    assert (told.exit_code, "CI must not reject" in told.output) == (2, True)


def test_a_case_that_waits_in_two_layers_needs_the_layer(repository: Path) -> None:
    store = Store(repository / "golden")
    store.write_pending(golden())
    store.write_pending(golden(machine=HERE), f"machines/{HERE}")
    told = paritygate("golden", "accept", "plain-one", "--reason", "x", "--root", repository)
    assert told.exit_code == 2
    assert "say which with --layer KEY" in told.output.replace("\n", " ")
    told = paritygate("golden", "accept", "plain-one", "--reason", "x", "--layer", HERE, "--root", repository)
    assert told.exit_code == 0, told.output
    assert store.names(layer=f"machines/{HERE}") == ("plain-one",)
    assert store.names(layer="reference") == ()


# Recording


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Oracles that answer at once, and which were asked."""
    asked: list[tuple[str, int]] = []

    def run(name: str, cases: list[Case], *, threads: int, **_: object) -> Iterator[OracleAnswer]:
        asked.append((name, threads))
        for case in cases:
            yield answer(name, threads, case=case.name)

    monkeypatch.setattr(recording, "run_oracle", run)
    monkeypatch.setattr(recording, "sha256_of", lambda path: "00")
    return asked


def record(repository: Path, *words: str) -> Result:
    weights = repository / "weights.gguf"
    weights.write_bytes(b"w")
    return paritygate("golden", "record", *words, "--checkpoint", weights, "--root", repository)


def two_cases(repository: Path) -> None:
    path = repository / "golden" / "cases.toml"
    path.write_text(path.read_text() + path.read_text().replace("plain-one", "plain-two"))


def test_a_partial_recording_leaves_every_other_file(repository: Path, oracle: list) -> None:
    two_cases(repository)
    store = Store(repository / "golden")
    accepted(store, golden())
    for name in ("plain-two", "plain-gone"):
        accepted(store, golden(named(name)))
    store.write_pending(golden(named("plain-two")))
    before = files(repository / "golden")
    told = record(repository, "plain-one")
    assert told.exit_code == 0, told.output
    after = files(repository / "golden")
    assert after.keys() - before.keys() == {"reference/plain-one.pending.jsonl"}
    assert {name: after[name] for name in before} == before


def test_a_recording_into_a_layer_of_this_machine(repository: Path, oracle: list) -> None:
    assert record(repository, "--layer", f"{HERE[:5]}*").exit_code == 0
    assert Store(repository / "golden").names(pending=True, layer=f"machines/{HERE[:5]}*") == ("plain-one",)
    other = record(repository, "--layer", "plan9-*")
    assert other.exit_code == 2
    assert "record it where it does" in other.output.replace("\n", " ")


def test_one_oracle_alone_is_recorded_only_where_the_policy_says_how_often(
    repository: Path, oracle: list
) -> None:
    told = record(repository, "--oracle", "transformers")
    assert (told.exit_code, oracle) == (2, [])
    assert "one oracle alone is not admitted" in told.output
    told = record(repository, "--oracle", "tokenline", "--oracle", "transformers")
    assert told.exit_code == 2
    assert "the policy has no oracle 'tokenline': there are transformers, mlx-lm" in told.output.replace(
        "\n", " "
    )
    path = repository / "paritygate.toml"
    path.write_text(path.read_text().replace("noise_multiple", "repeats_alone = 3\nnoise_multiple"))
    assert record(repository, "--oracle", "transformers").exit_code == 0
    assert oracle == [("transformers", 1)] * 3 + [("transformers", 2)] * 3
    store = Store(repository / "golden")
    store.accept("plain-one", REASON)
    runs = store.load("plain-one").provenance.runs
    assert [(run.oracle, run.threads, run.repeats) for run in runs] == [
        ("transformers", 1, 3), ("transformers", 2, 3),
    ]  # fmt: skip
    assert survey(policies.load(repository), repository).invalid == ()
    path.write_text(path.read_text().replace("repeats_alone = 3", "repeats_alone = 4"))
    assert survey(policies.load(repository), repository).invalid == (
        "plain-one has one oracle, 3 time(s): the policy demands 4 repeats of one",
    )


def test_repeats_must_agree_like_any_two_runs() -> None:
    alone = msgspec.structs.replace(POLICY, repeats_alone=2, threads=(1,))
    runs = [answer("transformers", 1), answer("transformers", 1)]
    made = admit(CASE, runs, alone, weights_sha256="00", machine="m", oracles=("transformers",))
    assert decode(encode(made), at="x") == made
    with pytest.raises(NotAdmitted, match="answered 1 of 2 times"):
        admit(CASE, runs[:1], alone, weights_sha256="00", machine="m", oracles=("transformers",))
    with pytest.raises(NotAdmitted, match="says another token at 1"):
        admit(CASE, [runs[0], answer("transformers", 1, ids=(7, 9))], alone, weights_sha256="00", machine="m",
              oracles=("transformers",))  # fmt: skip
    (run,) = made.provenance.runs
    assert run == OracleRun(
        oracle="transformers", dtype="float32", threads=1, versions={"transformers": "1"}, max_difference=0.0,
        repeats=2, min_margin=0.5,
    )  # fmt: skip
    once = msgspec.structs.replace(run, repeats=1)
    provenance = msgspec.structs.replace(made.provenance, runs=(once,))
    with pytest.raises(GoldenError, match="none repeated itself"):
        decode(encode(msgspec.structs.replace(made, provenance=provenance)), at="x")


WRITER = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
import msgspec
from hand_made_goldens import CASE, REASON, golden
from paritygate.golden.store import Store
store = Store(Path(sys.argv[1]), "m")
for number in range(12):
    name = f"{{sys.argv[2]}}-{{number}}"
    store.write_pending(golden(msgspec.structs.replace(CASE, name=name)))
    if number % 2:
        store.accept(name, REASON)
    if number % 3 == 2:
        store.write_pending(golden(msgspec.structs.replace(CASE, name=name)))
        store.reject(name)
"""


def test_two_processes_that_write_different_cases_lose_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    accepted(store, golden(named("kept")))
    kept = store.path("kept").read_bytes()
    script = WRITER.format(here=str(Path(__file__).parent))
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), who]) for who in ("left", "right")
    ]
    assert [process.wait(60) for process in running] == [0, 0]
    odd = {f"{who}-{number}" for who in ("left", "right") for number in range(1, 12, 2)}
    even = {f"{who}-{number}" for who in ("left", "right") for number in (0, 4, 6, 10)}
    assert set(store.names()) == odd | {"kept"}
    assert set(store.names(pending=True)) == even  # 2 and 8 were rejected
    assert store.path("kept").read_bytes() == kept
    assert not list(store.directory.glob(".writing-*"))


def test_a_disk_that_takes_no_more_loses_nothing_and_says_so_in_one_line(repository: Path) -> None:
    store = Store(repository / "golden")
    accepted(store, golden())
    store.write_pending(golden(ids=(7, 9)))
    before = files(repository / "golden")

    def little_room() -> None:
        # Python ignores the signal that comes with it: a write beyond the limit fails as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    told = subprocess.run(
        [sys.executable, "-c", "from paritygate.cli import main; main()", "golden", "accept", "--reason", "x",
         "--root", str(repository)],
        capture_output=True, text=True, preexec_fn=little_room,
    )  # fmt: skip
    assert told.returncode == 3, told.stderr
    (line,) = told.stderr.splitlines()
    assert line.endswith("not written, nothing was changed: File too large")
    assert files(repository / "golden") == before
