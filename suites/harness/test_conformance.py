"""The conformance suite: an adapter that keeps the protocol passes, and each check goes red for a defect of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_arm import ToyArm, flawed
from typer.testing import CliRunner

from paritygate.arms.command import CommandArm
from paritygate.cli import app
from paritygate.conformance import CHECKS, assert_conforms, conformance
from paritygate.conformance.answers import _spelling
from paritygate.conformance.cli import read_options
from paritygate.conformance.subject import Broken
from paritygate.stream import Position, Stream

FLAWS = [
    ("options-lax", "options", "an option that it does not know is taken in silence"),
    ("close-needs-open", "opening", "AttributeError, which is no ArmError: no process to stop"),
    ("opens-once", "opening", "RuntimeError, which is no ArmError: the port is taken"),
    ("empty", "declared", "the answer to a plain prompt is empty"),
    ("ids-missing", "declared", "it declares token_ids, and the answer has none"),
    ("cached-untold", "declared", "it declares cached_tokens, and the answer has none"),
    ("streamed-undeclared", "declared", "it gives streamed, and declares that it cannot"),
    ("usage-counts-end", "consistent", "usage says 13 completion_tokens, there are 12 ids"),
    ("positions-shifted", "consistent", "position 0 is of token"),
    ("other-text", "consistent", "the tokens spell"),
    ("tail-not-flushed", "pieces", "the pieces end at byte"),
    ("arrivals-backwards", "pieces", "arrivals are not times that grow"),
    ("reason-unknown", "ending", "finish_reason is 'eos'"),
    ("one-too-many", "ending", "it ended for its length after 13 of 12 tokens"),
    ("one-too-many", "one-token", "max_tokens 1 gives ids"),
    ("stop-unused", "stop-string", "cut there it would be"),
    ("half-characters", "unicode", "inside a character"),
    ("half-surrogate", "unicode", "half a character"),
    ("unsteady", "repeatable", "asked twice, it says"),
    ("repeat-once", "repeatable", "repeat(case, 2) gives 1 answers"),
    ("never-forgets", "forgetting", "after reset it reused 1 tokens"),
    ("logits-float64", "logits", "logits are float64"),
    ("logits-whole-prompt", "logits", "(12, vocabulary) is expected"),
    ("logits-nan", "logits", "not all finite"),
    ("logits-other-model", "logits", "its logits prefer"),
    ("logits-normalised", "logits", "it declares raw_logits, and gives log-softmax"),
    ("normalised-undeclared", "logits", "without raw_logits rows are log-softmax"),
    ("impossible-answered", "impossible", "as a prompt is answered"),
    ("impossible-crashes", "impossible", "IndexError, which is no ArmError"),
    ("limit-ignored", "timeout", "nothing kept the limit"),
    ("leaves-process", "nothing-left", "1 process(es) are left after close"),
]


def test_an_adapter_that_keeps_the_protocol_passes_every_check() -> None:
    findings = list(conformance(ToyArm, model="toy"))
    assert [found.check for found in findings if not found.held] == []
    assert [found.check for found in findings] == list(CHECKS)
    assert_conforms(ToyArm, model="toy")


@pytest.mark.parametrize(("flaw", "check", "why"), FLAWS, ids=[f"{f}-{c}" for f, c, _ in FLAWS])
def test_a_defect_turns_its_check_red(flaw: str, check: str, why: str) -> None:
    (found,) = conformance(flawed(flaw), model="toy", only=(check,))
    try:
        assert not found.held
        assert why in found.what
    finally:
        for word in found.what.split("close: ")[1:]:
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(word), signal.SIGKILL)


def test_every_check_has_a_defect_that_it_catches() -> None:
    assert set(CHECKS) - {check for _, check, _ in FLAWS} == {"capabilities"}


def test_capabilities_that_contradict_each_other_are_named() -> None:
    class Boasting(ToyArm):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            self.capabilities = type(self.capabilities)(raw_logits=True)

    (found,) = conformance(Boasting, model="toy", only=("capabilities",))
    assert found.what == "it declares raw_logits without teacher_forcing"


def test_a_failing_adapter_fails_its_authors_test() -> None:
    with pytest.raises(AssertionError, match="stop-string: with stop"):
        assert_conforms(flawed("stop-unused"), model="toy")


def engine(tmp_path: Path, text: str) -> list[str]:
    program = tmp_path / "engine.py"
    program.write_text(text, encoding="utf-8")
    return [sys.executable, str(program), "{prompt}", "{max_tokens}"]


def test_a_command_line_conforms_and_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    command = engine(
        tmp_path, "import sys\nprint(' '.join(sys.argv[1].split()[: int(sys.argv[2])]), end='')\n"
    )
    findings = {
        found.check: found
        for found in conformance(CommandArm, {"command": command, "output": "text"}, model="toy")
    }
    assert [name for name, found in findings.items() if not found.held] == []
    assert "has no place for `stop`" in findings["stop-string"].what


def test_the_command_prints_a_line_a_check_and_exits_by_what_it_found(tmp_path: Path) -> None:
    good = engine(tmp_path, "import sys\nprint(sys.argv[1][: int(sys.argv[2])], end='')\n")
    words = ["conformance", "command", "--model", "toy", "--option", f"command={good!r}"]
    words += ["--option", "output=text", "--only", "declared", "--only", "options"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0
    assert "2 of 2 checks held" in told.stdout
    missing = CliRunner().invoke(
        app,
        [
            *words[:4],
            "--option",
            'command=["/no/such", "{prompt}"]',
            "--option",
            "output=text",
            "--only",
            "declared",
        ],
    )
    assert missing.exit_code == 3
    assert "cannot be started" in missing.stdout
    assert CliRunner().invoke(app, ["conformance", "unheard-of", "--model", "x"]).exit_code == 2
    assert CliRunner().invoke(app, [*words, "--only", "no-such"]).exit_code == 2


def test_options_are_read_as_the_policy_would_hold_them() -> None:
    given = ["threads=2", "streamed=true", "url=http://x", 'command=["a", "b"]']
    assert read_options(given) == {
        "threads": 2,
        "streamed": True,
        "url": "http://x",
        "command": ["a", "b"],
    }
    with pytest.raises(ValueError, match="is not key=value"):
        read_options(["threads"])


TINY = Path(__file__).parents[2] / "golden" / "models" / "llama" / "checkpoint"


@pytest.mark.parametrize(("kind", "options"), [("tokenline", {"backend": "torch"}), ("transformers", {})])
def test_a_control_token_is_decided_and_not_said(kind: str, options: dict[str, str]) -> None:
    """The tiny model answers the plain prompt with <|im_start|> in the middle, which no text of an engine shows."""
    checks = ("declared", "consistent", "pieces", "stop-string")
    found = list(conformance(kind, options, model=str(TINY), only=checks))
    assert [(one.check, one.held) for one in found] == [(name, True) for name in checks], found


@pytest.mark.parametrize(
    ("words", "text", "held"),
    [
        (["ab", " c", "<|im_start|>", "d"], "ab cd", True),
        (["ab", " c", "<|im_start|>", "d"], "ab c<|im_start|>d", True),
        (["<s>", "ab", "[INST]", "<\uff5cend\u2581of\u2581sentence\uff5c>"], "ab", True),
        (["a.b", "(c)"], "a.b(c)", True),
        (["a.b", "(c)"], "axb(c)", False),
        (["ab", " c", "d"], "abd", False),
        (["ab", "<|im_start|>", "d"], "ab", False),
        # An angle in a text is no control token.
        (["a", "<", "b"], "ab", False),
        (["a", "[x]", "b"], "ab", False),
    ],
)
def test_only_control_tokens_may_be_left_out_of_a_text(
    stream: Callable[..., Stream], words: list[str], text: str, held: bool
) -> None:
    positions = tuple(Position(token_id=i, token=word, logprob=-0.1) for i, word in enumerate(words))
    answer = stream(list(range(len(words))), positions=positions, text=text)
    if held:
        _spelling(answer)
        return
    with pytest.raises(Broken, match="the tokens spell"):
        _spelling(answer)
