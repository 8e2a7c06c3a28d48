"""`paritygate init`: what it writes is read back by `load`, and `verify` runs on it."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paritygate.cli import app
from paritygate.init.draft import ENGINES, quoted
from paritygate.policy import load

ECHO = "import sys\nprint(sys.argv[1][: int(sys.argv[2])], end='')\n"


def run(root: Path, *words: str, typed: str = "") -> tuple[int, str]:
    told = CliRunner().invoke(app, ["init", "--root", str(root), *words], input=typed)
    return told.exit_code, told.stdout + told.stderr


@pytest.fixture(autouse=True)
def at_a_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "engine.py"
    path.write_text(ECHO, encoding="utf-8")
    return shlex.join([sys.executable, str(path), "{prompt}", "{max_tokens}"])


def test_a_scripts_policy_verifies(tmp_path: Path, program: str) -> None:
    status, said = run(
        tmp_path,
        "--yes",
        "--engine",
        "command",
        "--model",
        "toy",
        "--command",
        program,
        "--prompt",
        'Say "hé"\n\x7f',
    )
    assert status == 0, said
    policy = load(tmp_path)
    assert [case.prompt for case in policy.cases] == ['Say "hé"\n\x7f']
    assert policy.arms["engine"].options["command"][-2:] == ["{prompt}", "{max_tokens}"]
    told = CliRunner().invoke(app, ["verify", "--root", str(tmp_path)])
    assert told.exit_code == 0, told.stdout
    assert "IDENTICAL" in told.stdout


def test_a_persons_answers_make_the_same(tmp_path: Path, program: str) -> None:
    typed = f"command\ntoy\n{program}\nFirst prompt\nSecond prompt\n\n"
    status, said = run(tmp_path, typed=typed)
    assert status == 0, said
    assert "a program that prints one answer" in said
    policy = load(tmp_path)
    assert [case.prompt for case in policy.cases] == ["First prompt", "Second prompt"]
    assert policy.claims["repeatable"].arms == ("engine", "again")
    assert "next: paritygate verify" in said


def test_a_server_is_asked_whole_and_streamed(tmp_path: Path) -> None:
    typed = "url\nhttp://127.0.0.1:9\nvllm\n\nMY_KEY\n\n\n\n"
    status, said = run(tmp_path, typed=typed)
    assert status == 0, said
    policy = load(tmp_path)
    options = policy.arms["engine"].options
    assert options == {"url": "http://127.0.0.1:9", "dialect": "vllm", "api_key_env": "MY_KEY"}
    assert policy.arms["streamed"].options == options | {"streamed": True}
    assert policy.claims["streamed-is-whole"].cases == ("prompt-1", "prompt-2")


def test_a_policy_that_exists_is_not_touched(tmp_path: Path, program: str) -> None:
    path = tmp_path / "paritygate.toml"
    path.write_text("mine", encoding="utf-8")
    status, said = run(tmp_path, "--yes", "--engine", "command", "--model", "toy", "--command", program)
    assert (status, path.read_text(encoding="utf-8")) == (2, "mine")
    assert "exists already" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--engine", "unheard-of"], "no engine 'unheard-of': there are transformers"),
        (["--engine", "transformers"], "--model is missing: with --yes nothing is asked"),
        (["--engine", "server", "--model", "m"], "--command is missing"),
        (
            ["--engine", "command", "--model", "m", "--command", 'say "{prompt}'],
            "--command cannot be split into words: No closing quotation",
        ),
        (
            ["--engine", "command", "--model", "m", "--command", "say"],
            "--command has no place for the prompt",
        ),
        (["--engine", "command", "--model", "m", "--command", "  "], "--command is empty"),
        (
            ["--engine", "server", "--model", "m", "--command", "serve --port 80"],
            "--command has no place for the port",
        ),
        (
            ["--engine", "server", "--model", "m", "--command", "serve 'x"],
            "--command cannot be split into words",
        ),
        (["--engine", "transformers", "--model", ""], "--model is empty"),
        (["--engine", "url", "--url", ""], "--url is empty"),
        (["--engine", "transformers", "--model", "m", "--prompt", " "], "--prompt is empty"),
        (["--engine", "transformers", "--model", "m\udce9"], "an answer is no Unicode text: '\\udce9'"),
        (["--engine", "url", "--dialect", "french"], "no dialect 'french': there are openai"),
        (
            ["--engine", "transformers", "--model", "m", "--url", "http://x"],
            "--url says nothing about engine",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_named_and_nothing_is_written(
    tmp_path: Path, words: list[str], why: str
) -> None:
    status, said = run(tmp_path, "--yes", *words)
    assert status == 2
    assert why in said
    assert not (tmp_path / "paritygate.toml").exists()


@pytest.mark.parametrize("yes", [False, True])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--engine", "unheard-of"], "no engine 'unheard-of'"),
        (["--engine", "transformers", "--url", "http://x"], "--url says nothing about engine"),
        (["--engine", "url", "--dialect", "french"], "no dialect 'french'"),
    ],
)
def test_what_the_options_alone_get_wrong_is_said_before_anything_is_asked(
    tmp_path: Path, words: list[str], why: str, yes: bool
) -> None:
    status, said = run(tmp_path, *words, *(["--yes"] if yes else []), typed="a\nb\nc\n")
    assert status == 2
    assert said.startswith(why if why[0] != "-" else "--url")
    assert len(said.splitlines()) == 1


def test_ci_is_not_asked(tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    status, said = run(tmp_path, typed=f"command\ntoy\n{program}\n\n")
    assert status == 2
    assert said.startswith("CI is set: CI must not write a policy by asking")
    assert said.rstrip().endswith("or answer with options and --yes")
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "paritygate.toml").exists()
    status, _ = run(tmp_path, "--yes", "--engine", "command", "--model", "toy", "--command", program)
    assert status == 0


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_every_engine_makes_a_policy_that_loads(tmp_path: Path, engine: str) -> None:
    words = ["--yes", "--engine", engine]
    words += ["--model", "/models/m.gguf"] if ENGINES[engine].model else []
    words += ["--command", "run {model} {port} {prompt}"] if "command" in ENGINES[engine].asks else []
    status, said = run(tmp_path, *words)
    assert status == 0, said
    assert load(tmp_path).arms["engine"].kind == ENGINES[engine].kind


def test_values_are_toml() -> None:
    assert quoted(["a", 1, True, "\x7f"]) == '["a", 1, true, "\\u007f"]'


def test_answers_that_end_early_are_one_line(tmp_path: Path) -> None:
    status, said = run(tmp_path, typed="command\ntoy\n")
    assert status == 2
    assert "the answers ended: give the rest as options" in said
    assert not (tmp_path / "paritygate.toml").exists()


def started(root: Path, **how: Any) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "paritygate", "init", "--root", str(root)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


@pytest.mark.parametrize(
    ("typed", "says"), [(b"", b"the answers ended"), (b"transformers\n\xff\n", b"no text in utf-8")]
)
def test_without_a_terminal_what_cannot_be_read_is_one_line(
    tmp_path: Path, typed: bytes, says: bytes
) -> None:
    process = started(tmp_path, stdin=subprocess.PIPE, env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"})
    _, said = process.communicate(typed, timeout=60)
    assert process.returncode == 2
    assert says in said
    assert said.count(b"\n") == 1


def test_ctrl_c_at_a_question_writes_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, stdin=subprocess.PIPE)
    assert process.stdout is not None
    while not process.stdout.read1().endswith(b": "):  # type: ignore[union-attr]
        pass
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (4, b"interrupted: nothing was written\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["a link to nothing", "a folder"])
def test_whatever_has_the_policys_name_is_not_touched(tmp_path: Path, there: str) -> None:
    path = tmp_path / "paritygate.toml"
    if there == "a folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "gone")
    status, said = run(tmp_path, "--yes", "--engine", "transformers", "--model", "m")
    assert status == 2
    assert "exists already" in said


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", full)
    status, said = run(tmp_path, "--yes", "--engine", "transformers", "--model", "m")
    assert status == 2
    assert said == f"{tmp_path / 'paritygate.toml'} cannot be written: Read-only file system\n"


def test_a_root_whose_name_looks_like_markup_is_said_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "[bold]x[" / "red]"
    root.mkdir(parents=True)
    status, said = run(root, "--yes", "--engine", "transformers", "--model", "m")
    assert status == 0
    assert f"wrote {root / 'paritygate.toml'}: engine and again" in said
