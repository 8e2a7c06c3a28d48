"""The command line: exit codes, what is printed, and evidence that can be asked for afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from paritygate.cli import app


def paritygate(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def diverging(repository: Path) -> Path:
    """The second arm says something else."""
    other = repository / "other.py"
    other.write_text("print('hullo', end='')\n")
    path = repository / "paritygate.toml"
    head, tail = path.read_text().rsplit(str(repository / "engine.py"), 1)
    path.write_text(head + str(other) + tail)
    return repository


def test_verify_passes_and_leaves_a_report(repository: Path) -> None:
    report = repository / "out"
    result = paritygate("verify", "--only", "identity", "--root", repository, "--report", report)
    assert result.exit_code == 0, result.output
    document = json.loads((report / "report.json").read_bytes())
    assert (document["exit"], document["schema"]) == (0, 1)
    assert [check["verdict"] for check in document["checks"]] == ["IDENTICAL"]
    assert len(document["policy_hash"]) == 64


def test_verify_fails_with_1_and_explain_shows_why(diverging: Path) -> None:
    report = diverging / "out"
    result = paritygate("verify", "--only", "identity", "--root", diverging, "--report", report)
    assert result.exit_code == 1, result.output
    assert "DIVERGED" in result.output
    told = paritygate("explain", report, "greeting")
    assert told.exit_code == 0
    assert "the text differs from byte 1: 'hullo' where 'hello' is expected" in told.output
    assert paritygate("explain", report, "farewell").exit_code == 2
    assert paritygate("explain", diverging / "nothing", "greeting").exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--only", "idenity"), "no gate 'idenity'"), (("--tier", "slow"), "no tier 'slow'")],
)
def test_usage_errors_exit_with_2(repository: Path, words: tuple[str, ...], said: str) -> None:
    result = paritygate("verify", *words, "--root", repository)
    assert result.exit_code == 2
    assert said in result.output


def test_a_gate_without_claims_fails(repository: Path) -> None:
    assert paritygate("verify", "--only", "history", "--root", repository).exit_code == 1


def test_golden_commands_refuse_what_makes_no_sense(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARITYGATE_MODEL", raising=False)
    monkeypatch.delenv("CI", raising=False)
    status = paritygate("golden", "status", "--root", repository)
    assert status.exit_code == 1
    assert "no golden yet: plain-one" in status.output
    accept = paritygate("golden", "accept", "--reason", "x", "--root", repository)
    assert (accept.exit_code, "nothing is pending" in accept.output) == (2, True)
    record = paritygate("golden", "record", "--root", repository)
    assert (record.exit_code, "--checkpoint" in record.output) == (2, True)
    replay = paritygate("golden", "replay", "plain-two", "--root", repository)
    assert (replay.exit_code, "no case is named 'plain-two'" in replay.output) == (2, True)


def test_record_checks_the_weights_first(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    weights = repository / "weights.gguf"
    weights.write_bytes(b"not these")
    result = paritygate("golden", "record", "--checkpoint", weights, "--root", repository)
    assert result.exit_code == 2
    assert "the policy names 00" in result.output.replace("\n", " ")
    monkeypatch.setenv("CI", "true")
    result = paritygate("golden", "record", "--checkpoint", weights, "--root", repository)
    assert "CI must not record" in result.output.replace("\n", " ")
