"""Arms that hang, die, print garbage or nothing, contradict themselves: each is told apart, none passes."""

from __future__ import annotations

import math
import re
import sys
import time
from pathlib import Path

import pytest

from paritygate import policy as policies
from paritygate.arms import command
from paritygate.arms.answer import stream_of
from paritygate.arms.base import ArmError
from paritygate.arms.registry import make_arm
from paritygate.case import Case, Message
from paritygate.gates import golden, identity
from paritygate.gates.run import verify
from paritygate.run import Run
from paritygate.verdict import Check, Exit, Outcome, Verdict

CASE = Case(name="greeting", kind="plain", max_tokens=4, prompt="Good day")


def programs(repository: Path, fake: str, other: str = "print('hello', end='')") -> None:
    """Give each arm a program of its own."""
    path = repository / "paritygate.toml"
    text = path.read_text()
    first, second = (repository / name for name in ("fake.py", "other.py"))
    first.write_text(fake + "\n")
    second.write_text(other + "\n")
    engine = str(repository / "engine.py")
    text = text.replace(engine, str(first), 1).replace(engine, str(second), 1)
    path.write_text(text.replace("timeout_s = 5.0", "timeout_s = 2.0"))


def checks(repository: Path) -> list[Check]:
    return list(identity.run(policies.load(repository), repository, lambda line: None))


def test_two_programs_that_agree_pass(repository: Path) -> None:
    (check,) = checks(repository)
    assert (check.outcome, check.verdict) == (Outcome.PASS, Verdict.IDENTICAL)
    assert check.name == "identity/same/other/greeting"


def test_a_hanging_arm_is_a_setup_error_within_its_timeout(repository: Path) -> None:
    programs(repository, "print('thinking', flush=True)\nimport time\ntime.sleep(60)")
    started = time.monotonic()
    (check,) = checks(repository)
    assert time.monotonic() - started < 20
    assert (check.outcome, check.verdict) == (Outcome.COULD_NOT_RUN, Verdict.SETUP_ERROR)
    assert "hung: it did not end within 2 s" in check.headline
    assert check.details["printed"] == "thinking"


def test_a_dying_arm_shows_what_it_printed(repository: Path) -> None:
    programs(repository, "import sys\nsys.exit('no such kernel')")
    (check,) = checks(repository)
    assert check.verdict is Verdict.SETUP_ERROR
    assert "exit status 1" in check.headline
    assert "no such kernel" in check.headline


def test_garbage_is_a_setup_error(repository: Path) -> None:
    path = repository / "paritygate.toml"
    path.write_text(path.read_text().replace('output = "text"', 'output = "result"'))
    programs(repository, 'print(\'{"text": "hello"\')', 'print(\'{"text": "hello"}\')')
    (check,) = checks(repository)
    assert check.verdict is Verdict.SETUP_ERROR
    assert "printed what is not an answer" in check.headline
    assert '{"text": "hello"' in check.details["printed"]


def test_garbage_of_any_depth_is_its_arms_alone(repository: Path) -> None:
    path = repository / "paritygate.toml"
    path.write_text(path.read_text().replace('output = "text"', 'output = "result"'))
    programs(repository, "print('[' * 200_000)")
    (check,) = checks(repository)
    assert (check.verdict, check.name) == (Verdict.SETUP_ERROR, "identity/same/other/greeting"), check.name
    assert "printed what is not an answer" in check.headline


def test_bytes_that_are_not_utf8_are_garbage(repository: Path) -> None:
    programs(repository, "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe')")
    (check,) = checks(repository)
    assert check.verdict is Verdict.SETUP_ERROR


def test_empty_answers_do_not_pass(repository: Path) -> None:
    programs(repository, "", "")
    (check,) = checks(repository)
    assert (check.outcome, check.verdict) == (Outcome.FAIL, Verdict.NOT_RUN)
    assert check.headline.startswith("both answers are empty")


def test_other_text_diverges(repository: Path) -> None:
    programs(repository, "print('hallo', end='')")
    (check,) = checks(repository)
    assert (check.outcome, check.verdict) == (Outcome.FAIL, Verdict.DIVERGED)


def test_an_arm_that_contradicts_itself_is_inconclusive(repository: Path) -> None:
    programs(repository, "import time\nprint(time.monotonic_ns(), end='')")
    (check,) = checks(repository)
    assert (check.outcome, check.verdict) == (Outcome.INCONCLUSIVE, Verdict.INCONCLUSIVE)
    assert "fake disagrees with its own repeat" in check.headline


def test_a_claim_without_cases_fails(repository: Path) -> None:
    path = repository / "paritygate.toml"
    path.write_text(path.read_text().replace('cases = ["greeting"]', "cases = []"))
    assert [check.verdict for check in checks(repository)] == [Verdict.NOT_RUN]


def test_a_program_that_does_not_exist(repository: Path) -> None:
    arm = make_arm("x", "command", {"command": ["/no/such/program", "{prompt}"]}, "toy")
    with pytest.raises(ArmError, match="cannot be started"):
        arm.generate(CASE)


def test_a_chat_is_refused_by_a_foreign_command() -> None:
    arm = make_arm("x", "command", {"command": ["true", "{prompt}"]}, "toy")
    chat = Case(name="c", kind="chat", max_tokens=1, messages=(Message("user", "hi"),))
    with pytest.raises(ArmError, match="takes a plain prompt"):
        arm.generate(chat)


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        ("unheard-of", {}, "there are command, http, llama.cpp, mlx-lm, tokenline, transformers"),
        ("command", {"comand": []}, "unknown field `comand`"),
    ],
)
def test_an_arm_that_cannot_be_made(kind: str, options: dict, why: str) -> None:
    with pytest.raises(ArmError, match=why):
        make_arm("x", kind, options, "toy")


def run(repository: Path, gates: tuple[str, ...] = ("identity",)) -> Run:
    policy = policies.load(repository)
    return verify(
        policy, repository, gates, tier="fast", progress=lambda line: None, on_check=lambda check: None
    )


def test_a_gate_that_says_nothing_fails_the_run(repository: Path) -> None:
    made = run(repository, ("cache",))
    assert made.exit is Exit.GATE_FAILED
    assert [check.name for check in made.checks] == ["cache/empty"]


def test_a_gate_that_breaks_could_not_run_and_the_others_go_on(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError("no such row")

    monkeypatch.setattr(golden, "store_check", broken)
    made = run(repository, ("golden", "identity"))
    assert made.exit is Exit.COULD_NOT_RUN
    assert [check.name for check in made.checks] == ["golden/broke", "identity/same/other/greeting"]
    assert "no such row" in made.checks[0].headline
    assert "RuntimeError" in made.checks[0].details["traceback"]


def test_ctrl_c_leaves_a_partial_run(repository: Path) -> None:
    policy = policies.load(repository)

    def interrupt(check: Check) -> None:
        raise KeyboardInterrupt

    made = verify(
        policy,
        repository,
        ("identity", "golden"),
        tier="fast",
        progress=lambda line: None,
        on_check=interrupt,
    )
    assert made.interrupted
    assert made.exit is Exit.INCONCLUSIVE
    assert [check.name for check in made.checks] == ["identity/same/other/greeting"]
    assert made.to_json()["exit"] == 4


RESULT = {
    "text": "a",
    "prompt_token_ids": [1],
    "token_ids": [2],
    "logprobs": None,
    "finish_reason": "stop",
    "finish_cause": "Eos",
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    "manifest": {},
    "counters": {},
    "timings": {},
}


@pytest.mark.parametrize(
    "more",
    [
        {"text": 5},
        {"manifest": [1]},
        {"text": "\ud800"},
        {"token_ids": []},
        {"token_ids": ["3"]},
        {"usage": {}},
    ],
)
def test_a_result_of_wrong_types_is_an_arm_error(more: dict[str, object]) -> None:
    impossible = {"token_id": 3, "token": "b", "logprob": -math.inf}  # a token that a grammar does not allow
    entry = {"token_id": 2, "token": "a", "logprob": 0.0, "top_logprobs": [impossible]}
    assert stream_of(RESULT | {"logprobs": [entry]}, case="c", arm="a").token_ids == (2,)
    with pytest.raises(ArmError, match="arm a, case c: the result"):
        stream_of(RESULT | more, case="c", arm="a")


def test_a_program_that_prints_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MOST_PRINTED", 1 << 20)
    words = [sys.executable, "-c", "while True: print('x' * 1000)"]
    with pytest.raises(ArmError, match="printed more than 1 MiB: that is no answer") as caught:
        command.run_to_end(words, timeout_s=30.0)
    assert len(caught.value.printed) <= 4000


@pytest.mark.parametrize("words", [["echo", "hi"], ["echo", "{text}"], ["engine", "--model", "{model}"]])
def test_a_command_that_never_sees_the_prompt_is_refused(words: list[str]) -> None:
    with pytest.raises(ArmError, match="no place for the prompt"):
        make_arm("x", "command", {"command": words}, "toy")
    for place in ("{prompt}", "--file={prompt_file}"):
        make_arm("x", "command", {"command": [*words, place]}, "toy")


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("command", {"command": ["x", "{prompt}", "{max_token}"]}, "is {max_tokens} meant"),
        ("command", {"command": ["x", "{promt}", "{prompt}"]}, "is {prompt} meant"),
        ("http", {"command": ["serve", "{prot}"]}, "is {port} meant"),
        ("http", {"url": "127.0.0.1:9"}, "write it like http://127.0.0.1:8000"),
        ("http", {"url": "http://127.0.0.1:99999"}, "is no address"),
        ("http", {"url": "not a url"}, "is no address"),
        ("http", {"url": "ftp://here"}, "is no address"),
    ],
)
def test_what_cannot_be_meant_is_refused(kind: str, options: dict, says: str) -> None:
    with pytest.raises(ArmError, match=re.escape(says)):
        make_arm("x", kind, options, "toy")


def test_braces_of_the_programs_own_are_left_alone() -> None:
    make_arm("x", "command", {"command": ["awk", "{print}", '{"a": {b}}', "{prompt}"]}, "toy")
    make_arm("x", "http", {"url": "https://[::1]:8000/v1"}, "toy")
