"""Answers that cannot be true never become evidence; those that are odd and right do."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paritygate.arms.plausible import implausible, vocabulary_of
from paritygate.gates import identity
from paritygate.policy import load
from paritygate.stream import Position, Stream, TopToken, Usage
from paritygate.verdict import Exit, Outcome, exit_code

TINY = Path(__file__).parents[2] / "golden" / "models" / "llama" / "checkpoint"
Make = Callable[..., Stream]


def usage(prompt: int = 3, completion: int = 2, total: int | None = None, cached: int | None = None) -> Usage:
    total = prompt + completion if total is None else total
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=total, cached_tokens=cached)


def second(logprob: float = -0.5, *tops: float, margin: float | None = None) -> dict[str, Any]:
    """Two positions, the second as given."""
    top = tuple(TopToken(20 + i, f"t{i}", value) for i, value in enumerate(tops))
    good = Position(token_id=5, token="a", logprob=-0.1)
    return {"positions": (good, Position(token_id=6, token="b", logprob=logprob, top=top, margin=margin))}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"token_ids": (5, -6)}, "token 1 has the id -6"),
        ({"token_ids": (5, 100)}, "token 1 has the id 100, the vocabulary has 100 tokens"),
        ({"prompt_token_ids": (1, 2, -1)}, "prompt token 2 has the id -1"),
        (second(math.nan), "token 1 has logprob nan"),
        (second(math.inf), "token 1 has logprob inf"),
        (second(-math.inf), "token 1 has logprob -inf"),
        (second(0.25), "token 1 has logprob 0.25"),
        (second(-0.5, -0.5, math.nan), "token 1 has an alternative 't1' with logprob nan"),
        (second(-0.5, 2.0), "token 1 has an alternative 't0' with logprob 2.0"),
        (second(margin=math.nan), "token 1 has margin nan"),
        ({"usage": usage(completion=-1)}, "usage says -1 completion_tokens"),
        ({"usage": usage(completion=3)}, "usage says 3 completion_tokens, there are 2 ids"),
        ({"usage": usage(completion=1)}, "usage says 1 completion_tokens, there are 2 ids"),
        ({"usage": usage(prompt=4)}, "usage says 4 prompt_tokens, there are 3 ids"),
        ({"usage": usage(total=9)}, "usage says 9 tokens, 3 and 2 of them"),
        ({"usage": usage(cached=4)}, "usage says 4 cached_tokens of 3 prompt_tokens"),
        ({"usage": usage(cached=-4)}, "usage says -4 cached_tokens"),
        ({"counters": {"forwards": -1}}, "counter forwards is -1"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_named(stream: Make, more: dict[str, Any], said: str) -> None:
    assert implausible(stream([5, 6], **({"positions": None} | more)), 100) == said


@pytest.mark.parametrize(
    "more",
    [
        {},
        second(-0.5, -0.5, -math.inf),  # a grammar forbids an alternative
        second(1e-7),  # a certainty, rounded
        second(-9999.0),  # how some servers write minus infinity
        # A server that counts the end-of-sequence token, which is not among the ids.
        {"usage": usage(completion=3), "finish_reason": "stop", "finish_cause": "Eos"},
        {"token_ids": None, "usage": usage(completion=40)},
        {"prompt_token_ids": None, "usage": usage(prompt=7)},
        {"usage": None, "counters": {"prefill_pieces": [[0, 3]], "name": "x"}},
    ],
)
def test_an_answer_that_is_odd_but_can_be_passes(stream: Make, more: dict[str, Any]) -> None:
    assert implausible(stream([5, 6], **more), 1000) == ""


def test_the_vocabulary_is_the_checkpoints(tmp_path: Path) -> None:
    assert vocabulary_of(str(TINY)) == json.loads((TINY / "config.json").read_text())["vocab_size"]
    for text in (
        '{"text_config": {"vocab_size": 7}}',
        '{"text_config": []}',
        "[]",
        "{",
        '{"vocab_size": "7"}',
    ):
        (tmp_path / "config.json").write_text(text)
        assert vocabulary_of(str(tmp_path)) == (7 if 'text_config": {' in text else None)
    assert vocabulary_of("an-alias") is None


PROGRAM = """\
import json, sys

answer = json.load(open(sys.argv[1]))
answer["logprobs"][1]["logprob"] = float(sys.argv[2])
print(json.dumps(answer))
"""


def test_a_gate_fails_the_answer_and_names_the_value(repository: Path, stream: Make) -> None:
    """Both sides print the same NaN: without a look at it they would agree."""
    good = msgspec.to_builtins(stream([5, 6], text="ab"))
    entry = {"token_id": 5, "token": "a", "logprob": -0.1, "top_logprobs": []}
    result = {
        name: good[name] for name in ("text", "prompt_token_ids", "token_ids", "usage", "finish_reason")
    }
    result |= {"logprobs": [entry, entry | {"token_id": 6}], "finish_cause": "Length"}
    result |= {"manifest": {}, "counters": {}, "timings": {}}
    (repository / "answer.json").write_text(json.dumps(result))
    (repository / "engine.py").write_text(PROGRAM)
    path = repository / "paritygate.toml"
    for value, code in (("-0.2", Exit.PASS), ("nan", Exit.GATE_FAILED)):
        words = [
            sys.executable,
            str(repository / "engine.py"),
            str(repository / "answer.json"),
            value,
            "{prompt}",
        ]
        table = f'kind = "command"\ncommand = {json.dumps(words)}\noutput = "result"\n'
        text = path.read_text()
        head, rest = text[: text.index("[arms.fake]")], text[text.index("[goldens]") :]
        path.write_text(f"{head}[arms.fake]\n{table}\n[arms.other]\n{table}\n{rest}")
        checks = list(identity.run(load(repository), repository, lambda line: None))
        assert exit_code(checks) is code, checks
    (check,) = checks
    assert check.outcome is Outcome.FAIL
    assert check.headline == "arm fake, case greeting: token 1 has logprob nan: that cannot be"
