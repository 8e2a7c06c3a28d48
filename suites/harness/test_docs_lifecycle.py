"""The pages about goldens and triage: their settings are read and their commands run, in the order of the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest
from hand_made_goldens import CASE, REASON, golden
from test_bisect import SAYS, history
from test_golden_lifecycle import oracle  # noqa: F401  (a fixture)
from test_triage_commands import repository as counting  # noqa: F401  (a fixture)
from typer.testing import CliRunner

from paritygate import policy as policies
from paritygate.cli import app
from paritygate.golden.store import Store
from paritygate.machine import this_machine

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def commands(page: str) -> list[list[str]]:
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]
    words = [shlex.split(line, comments=True) for line in lines]
    assert words
    assert all(line[0] == "paritygate" for line in words)
    return [line[1:] for line in words]


def test_the_settings_of_the_pages_are_a_policy_and_say_the_defaults(repository: Path) -> None:
    path = repository / "paritygate.toml"
    text = path.read_text()
    (goldens,) = blocks("goldens.md", "toml")
    (triage,) = blocks("triage.md", "toml")
    start, end = text.index("[goldens]"), text.index("[[cases]]")
    (repository / "golden" / "cases.toml").rename(repository / "cases.toml")
    (repository / "golden" / "my-model").mkdir()
    (repository / "cases.toml").rename(repository / "golden" / "my-model" / "cases.toml")
    path.write_text(text[:start] + goldens + triage + text[end:])
    policy = policies.load(repository)
    assert policy.triage == policies.Policy.__struct_defaults__[-1]
    assert policy.goldens.repeats_alone == 0
    assert policy.goldens.directory == "golden/my-model"


def test_the_commands_about_goldens_run_as_written(
    counting: Path,  # noqa: F811
    oracle: list,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = '[[case]]\nname = "{}"\nmax_tokens = 2\nprompt = "One"\n'
    (counting / "golden" / "cases.toml").write_text(case.format("plain-bees") + case.format("chat-moon"))
    policy = counting / "paritygate.toml"
    # Nothing but the golden claim, whose arms the page calls by other names.
    kept = policy.read_text().partition("[claims.same]")[0]
    policy.write_text(kept.replace("[arms.wrong]", "[arms.torch]").replace('"wrong"', '"torch"'))
    (counting / "golden" / "reference" / "recorded.jsonl").unlink()
    (counting / "weights.gguf").write_bytes(b"w")
    monkeypatch.setenv("PARITYGATE_MODEL", str(counting / "weights.gguf"))
    monkeypatch.chdir(counting)
    store = Store(counting / "golden")
    ended = []
    for words in commands("goldens.md"):
        told = CliRunner().invoke(app, words, input="s\na\nread\n")
        ended.append((words[1], int(told.exit_code)))
        assert told.exception is None or isinstance(told.exception, SystemExit), (words, told.output)
        if words[1] == "review":
            # As after a second recording, so that there is something to accept and to reject without the screen.
            store.write_pending(golden(msgspec.structs.replace(CASE, name="plain-bees")))
            assert store.names(pending=True) == ("chat-moon", "plain-bees")
    layered = this_machine().key.startswith("linux-")
    assert ended == [
        ("record", 0),
        ("status", 1),  # nothing is accepted yet
        ("review", 0),
        ("replay", 1),  # an engine that counts does not say what these oracles say
        ("accept", 0),
        ("reject", 0),
        ("record", 0 if layered else 2),
        ("accept", 0 if layered else 2),
    ]
    assert store.names(pending=True) == ()


def test_the_commands_about_triage_run_as_written(
    counting: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(counting)
    report = CliRunner().invoke(app, ["verify", "--tier", "fast", "--report", "reports/out"])
    assert report.exit_code == 1, report.output
    asked = [words for words in commands("triage.md") if words[0] != "bisect"]
    for words in asked:
        told = CliRunner().invoke(app, words)
        assert told.exit_code == (0 if words[0] == "explain" else 1), (words, told.output)
        assert "DIVERGED" in told.output
        if words[0] == "explain" or "--triage" in words:
            said = " ".join(told.output.split())
            for finding in ("settings:", "partition and batch", "fed the reference's tokens", "KL(", "layers:",
                            "smallest prompt:", "see it again:"):  # fmt: skip
                assert finding in said, (words, finding)


def test_the_bisection_of_the_page_runs_as_written(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    history(repository, [SAYS.format(said="ab"), SAYS.format(said="ac")])
    store = Store(repository / "golden")
    store.write_pending(golden())
    store.accept("plain-one", REASON)
    monkeypatch.chdir(repository)
    (words,) = [words for words in commands("triage.md") if words[0] == "bisect"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert "first bad commit:" in told.output
