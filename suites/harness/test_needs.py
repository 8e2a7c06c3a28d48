"""A claim that an arm cannot be held to is refused with line and key; one that is narrowed says so in its verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paritygate.compare.identity import compare
from paritygate.compare.logprobs import largest_difference
from paritygate.compare.narrowed import narrowed
from paritygate.gates.envelope import _judge as judge_logits
from paritygate.policy import Envelope, PolicyError, load
from paritygate.stream import Position, Stream, TopToken
from paritygate.verdict import Verdict

HEAD = """\
schema = 1

[checkpoint]
name = "m"
model = "m"
sha256 = "00"

[arms.text]
kind = "http"
details = false

[arms.served]
kind = "http"
url = "http://127.0.0.1:1"

[arms.printed]
kind = "command"
command = ["engine", "{prompt}"]
output = "text"

[arms.gguf]
kind = "llama.cpp"

[goldens]
directory = "golden"

[envelopes.e]
kl_mean = 1.0
kl_max = 1.0
max_abs_logit = 1.0
reason = "by hand"

[[cases]]
name = "greedy"
max_tokens = 1
prompt = "x"

[[cases]]
name = "drawn"
max_tokens = 1
prompt = "x"
sampler = { temperature = 1.0 }
"""
LINE = len(HEAD.splitlines()) + 4


@pytest.fixture
def policy(tmp_path: Path) -> Callable[[str], Path]:
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "cases.toml").write_text(
        '[[case]]\nname = "g"\nmax_tokens = 1\nprompt = "x"\n', encoding="utf-8"
    )

    def write(claim: str) -> Path:
        kind, arms, *rest = claim.splitlines()
        (tmp_path / "paritygate.toml").write_text(
            HEAD + "\n".join(["", "[claims.c]", kind, arms, *rest, ""]), encoding="utf-8"
        )
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (
            'kind = "history"\narms = ["text"]\ncases = ["greedy"]',
            "arm text (kind http, details off) cannot give token ids: a `history` claim recomputes",
        ),
        (
            'kind = "history"\narms = ["gguf"]\ncases = ["greedy"]',
            "arm gguf (kind llama.cpp) cannot give raw logits: a `history` claim",
        ),
        (
            'kind = "envelope"\narms = ["gguf", "served"]\ncases = ["greedy"]\nenvelope = "e"',
            "arm served (kind http, url http://127.0.0.1:1) cannot give teacher-forced logits",
        ),
        (
            'kind = "cache"\narms = ["served"]\nrepeat = ["greedy"]',
            "arm served (kind http, url http://127.0.0.1:1) cannot give a cold start",
        ),
        (
            'kind = "cache"\narms = ["printed"]\nrepeat = ["greedy"]',
            "arm printed (kind command, a command of its own, output text) cannot give the number of tokens",
        ),
        (
            'kind = "golden"\narms = ["printed"]\nenvelope = "e"',
            "cannot give logprobs: a `golden` claim with an `envelope` measures them; leave `envelope` out",
        ),
        (
            'kind = "golden"\narms = ["text"]\npromise = "decided"',
            "cannot give teacher-forced logits: a `decided` promise",
        ),
        (
            'kind = "identity"\narms = ["text", "printed"]\ncases = ["greedy", "drawn"]',
            "cannot give seeded answers: case drawn draws at random",
        ),
    ],
)
def test_a_claim_that_cannot_be_held_is_refused(
    policy: Callable[[str], Path], claim: str, message: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        load(policy(claim))
    assert str(caught.value).startswith(f"paritygate.toml:{LINE}: claims.c.arms: arm ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "claim",
    [
        'kind = "identity"\narms = ["text", "printed", "served"]\ncases = ["greedy"]',
        'kind = "golden"\narms = ["printed"]',
        'kind = "golden"\narms = ["gguf"]\npromise = "decided"\nenvelope = "e"',
        'kind = "cache"\narms = ["text", "gguf"]\nrepeat = ["greedy"]',
    ],
)
def test_a_claim_that_can_be_held_is_taken(policy: Callable[[str], Path], claim: str) -> None:
    assert load(policy(claim)).claims["c"].arms


def test_a_verdict_says_what_was_not_compared(stream: Callable[..., Stream]) -> None:
    full = stream([5, 6])
    text_only = stream([5, 6], arm="x", token_ids=None, prompt_token_ids=None, positions=None)
    found = compare(full, text_only, floor=0.02)
    assert found.verdict is Verdict.IDENTICAL
    said = "the text agrees (6 bytes) (compared text, finish and usage; token ids are not given by x)"
    assert found.headline == said
    assert compare(text_only, full, floor=0.02).headline == said
    bare = stream([5, 6], arm="y", token_ids=None, usage=None, finish_reason=None, finish_cause=None)
    assert narrowed(full, bare) == (
        "compared text and prompt tokens; token ids are not given by y; finish is not given by y; "
        "usage is not given by y"
    )
    assert narrowed(full, full) == ""


def test_texts_that_differ_show_both_top_two_where_tokens_are_only_spelled(
    stream: Callable[..., Stream],
) -> None:
    ours = stream([5, 6, 7], token_ids=None, gaps=[1.0, 0.5, 1.0])
    theirs = stream([5, 8, 7], token_ids=None, gaps=[1.0, 0.01, 1.0])
    found = compare(ours, theirs, floor=0.02)
    assert found.verdict is Verdict.DIVERGED
    assert found.details["at"]["reference"]["token"] == "w6 "
    assert found.details["at"]["candidate"]["gap"] == pytest.approx(0.01)
    assert found.details["decided"] is False


def test_an_arm_without_raw_logits_is_compared_by_log_softmax() -> None:
    """Rows that differ by a constant each say the same; the verdict tells that log-softmax was compared, and why."""
    rows = np.array([[1.0, 2.0, 4.0], [0.5, -1.0, 3.0]], np.float32)
    shifted = rows + np.array([[7.0], [-3.0]], np.float32)
    shifted[0, 0] += 1e-3
    wide = Envelope(kl_mean=1e-3, kl_max=1e-3, max_abs_logit=1e-2, reason="by hand")
    raw = judge_logits("n", [rows, shifted], wide, set(), 0.0)
    assert raw.verdict is Verdict.DIVERGED
    found = judge_logits("n", [rows, shifted], wide, {"gguf"}, 0.0)
    assert found.verdict is Verdict.WITHIN_ENVELOPE
    assert found.headline.endswith("(of log-softmax: gguf gives no raw logits)")


def test_logprobs_are_matched_by_text_where_no_ids_are_told(stream: Callable[..., Stream]) -> None:
    def position(token_id: int | None, token: str, logprob: float) -> Position:
        return Position(
            token_id=token_id, token=token, logprob=logprob, top=(TopToken(token_id, token, logprob),)
        )

    ours = stream([5], positions=(position(5, " a", -0.5),))
    found = largest_difference(ours, stream([5], positions=(position(None, " a", -0.75),)))
    assert found is not None
    assert found.distance == 0.25
    assert largest_difference(ours, stream([5], positions=(position(None, " b", -0.75),))) is None
    half = stream([5], positions=(position(5, "\ufffd", -0.5),))
    assert largest_difference(half, stream([5], positions=(position(None, "\ufffd", -0.75),))) is None


def test_the_largest_logprob_difference_says_where_and_what(stream: Callable[..., Stream]) -> None:
    """Two answers of one token each position: the second differs by a quarter, minus infinity by nothing."""

    def answer(*logprobs: float) -> Stream:
        tops = tuple(TopToken(i, f"t{i}", value) for i, value in enumerate(logprobs))
        return stream(
            [0, 1],
            positions=tuple(Position(token_id=0, token="t0", logprob=-1.0, top=(top,)) for top in tops),
        )

    never = -math.inf
    assert largest_difference(answer(never, -0.5), answer(never, -0.75)).distance == 0.25
    found = largest_difference(answer(-1.0, -0.5), answer(-1.0, -0.75))
    assert found.outside(0.1) == (
        "at token 1 the logprob of 't1' (1) is -0.75 where -0.5 is expected: 0.25 apart, 0.1 is allowed"
    )
    assert largest_difference(answer(-1.0, never), answer(-1.0, -0.75)).distance == math.inf


ARM = '[arms.{name}]\nkind = "{kind}"\n{options}\n'
ALIKE = 'kind = "identity"\narms = ["one", "two"]\ncases = ["greedy"]'


def arms_of(place: Path, one: tuple[str, str], two: tuple[str, str]) -> None:
    """The two arms that a claim of `ALIKE` names, as kind and options."""
    path = place / "paritygate.toml"
    tables = "".join(
        ARM.format(name=name, kind=kind, options=options)
        for name, (kind, options) in (("one", one), ("two", two))
    )
    text = path.read_text()
    at = text.index("[claims.c]")
    path.write_text(text[:at] + tables + text[at:])


TORCH = 'backend = "torch"'


@pytest.mark.parametrize(
    ("one", "two", "apart"),
    [
        (("transformers", ""), ("mlx-lm", ""), "backend is 'torch' and 'mlx'"),
        (("transformers", ""), ("llama.cpp", ""), "backend is 'torch' and 'ggml'"),
        (("transformers", ""), ("transformers", 'dtype = "bfloat16"'), "dtype is 'float32' and 'bfloat16'"),
        (("tokenline", TORCH), ("http", 'backend = "mlx"'), "backend is 'torch' and 'mlx'"),
        (("tokenline", TORCH), ("command", TORCH + "\nthreads = 2"), "threads is 1 and 2"),
        (
            ("tokenline", TORCH),
            ("mlx-lm", 'dtype = "float16"'),
            "backend is 'torch' and 'mlx', dtype is 'float32' and 'float16'",
        ),
    ],
)
def test_an_identity_that_no_run_could_show_is_refused_when_the_policy_is_read(
    policy: Callable[[str], Path], one: tuple[str, str], two: tuple[str, str], apart: str
) -> None:
    place = policy(ALIKE)
    arms_of(place, one, two)
    with pytest.raises(PolicyError) as caught:
        load(place)
    said = str(caught.value)
    assert f"claims.c.arms: one and two can never be compared, {apart}: set them alike" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("tokenline", TORCH), ("transformers", "")),
        # What "auto" becomes, and what a foreign server or program runs, is known when it runs.
        (("tokenline", TORCH), ("http", "")),
        (("transformers", ""), ("http", 'url = "http://127.0.0.1:1"\nbackend = "mlx"')),
        (("transformers", ""), ("command", 'command = ["x", "{prompt}"]\noutput = "text"\nthreads = 2')),
        (("transformers", ""), ("http", 'details = false\nbackend = "mlx"')),
    ],
)
def test_an_identity_that_a_run_may_show_is_taken(
    policy: Callable[[str], Path], one: tuple[str, str], two: tuple[str, str]
) -> None:
    place = policy(ALIKE)
    arms_of(place, one, two)
    assert load(place).claims["c"].arms == ("one", "two")
