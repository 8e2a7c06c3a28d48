"""Hand-made streams and policies: what the harness is fed here, no engine computed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that tests share

from paritygate.stream import Position, Stream, TopToken, Usage

POLICY = """\
schema = 1

[checkpoint]
name = "toy"
model = "toy"
sha256 = "00"

[arms.fake]
kind = "command"
command = ["{python}", "{program}", "{prompt}"]
output = "text"
timeout_s = 5.0

[arms.other]
kind = "command"
command = ["{python}", "{program}", "{prompt}"]
output = "text"
timeout_s = 5.0

[goldens]
directory = "golden"
margin_floor = 0.02
noise_multiple = 100
oracles = ["transformers", "mlx-lm"]
threads = [1, 2]
reason = "by hand"

[[cases]]
name = "greeting"
kind = "plain"
max_tokens = 4
prompt = "Good day"

[claims.same]
kind = "identity"
arms = ["fake", "other"]
cases = ["greeting"]
"""

CASES = """\
[[case]]
name = "plain-one"
kind = "plain"
max_tokens = 2
prompt = "One"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a policy, a case, and an engine that prints what it is told to."""
    import sys

    program = tmp_path / "engine.py"
    program.write_text("print('hello', end='')\n")
    policy = POLICY.replace("{python}", sys.executable).replace("{program}", str(program))
    (tmp_path / "paritygate.toml").write_text(policy)
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "cases.toml").write_text(CASES)
    return tmp_path


@pytest.fixture
def stream() -> Callable[..., Stream]:
    """Makes a stream of words, one token each: ids are given, gaps too."""

    def make(ids: list[int], *, gaps: list[float] | None = None, **more: object) -> Stream:
        words = [f"w{i} " for i in ids]
        gaps = gaps or [1.0] * len(ids)
        positions = tuple(
            Position(
                token_id=i,
                token=word,
                logprob=-0.1,
                top=(TopToken(i, word, -0.1), TopToken(i + 100, f"w{i + 100} ", -0.1 - gap)),
            )
            for i, word, gap in zip(ids, words, gaps, strict=True)
        )
        given = {
            "case": "c",
            "arm": "a",
            "text": "".join(words),
            "prompt_token_ids": (1, 2, 3),
            "token_ids": tuple(ids),
            "positions": positions,
            "finish_reason": "length",
            "finish_cause": "Length",
            "usage": Usage(prompt_tokens=3, completion_tokens=len(ids), total_tokens=3 + len(ids)),
        }
        return Stream(**(given | more))

    return make
