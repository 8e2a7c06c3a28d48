"""When a streamed answer came: as it was made or in one burst, by the server's clock or, without it, by ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_server import SERVER
from two_cases import TOY

from paritygate.case import Case
from paritygate.compare.arrivals import TELLING_NS, spread_of
from paritygate.gates import identity
from paritygate.gates.identity import _confirmed
from paritygate.policy import load
from paritygate.replay import check_again
from paritygate.stream import Stream
from paritygate.verdict import Exit, Verdict, exit_code

MS = 10_000_000  # times are those of a slow engine: quick answers tell nothing
TOKENS = list(range(16))
EVENLY = tuple(100 * MS + i * 10 * MS for i in range(16))
BURST = tuple(250 * MS + i * 1000 for i in range(16))
DECODED = {"token_ns": (10 * MS,) * 16}


@pytest.mark.parametrize(
    ("more", "verdict", "said"),
    [
        ({"arrivals_ns": EVENLY, "timings": DECODED}, Verdict.HELD, "94% of the decode time"),
        ({"arrivals_ns": BURST, "timings": DECODED}, Verdict.BROKEN, "arrived in one burst: 16 pieces"),
        ({"arrivals_ns": EVENLY}, Verdict.HELD, "60% of the time since the request"),
        ({"arrivals_ns": BURST}, Verdict.BROKEN, "within 0% of its time since the request"),
        ({"arrivals_ns": EVENLY, "token_ids": None}, Verdict.HELD, "60%"),
        ({"arrivals_ns": (250 * MS,), "token_ids": None}, Verdict.BROKEN, "1 pieces"),
        # Two hundred bytes in one piece were not one token, though nobody says how many they were.
        (
            {
                "arrivals_ns": (250 * MS,),
                "token_ids": None,
                "usage": None,
                "text": "twenty bytes of text " * 13,
            },
            Verdict.BROKEN,
            "1 pieces",
        ),
        ({"arrivals_ns": None}, Verdict.NOT_RUN, "the arm did not stream"),
        (
            {"arrivals_ns": EVENLY[:3], "token_ids": (1, 2, 3)},
            Verdict.INCONCLUSIVE,
            "the longest, of case c, has 3 tokens in 1.20 s; name in `cases` of this claim one more whose answer has "
            "at least 16 tokens and takes 0.15 s, by a prompt that asks for much and a larger `max_tokens`",
        ),
    ],
)
def test_a_burst_is_told_from_a_stream(
    stream: Callable[..., Stream], more: dict[str, Any], verdict: Verdict, said: str
) -> None:
    found = spread_of([stream(TOKENS, **more)])
    assert found.verdict is verdict
    assert said in found.headline


def test_an_answer_that_was_made_at_once_tells_nothing(stream: Callable[..., Stream]) -> None:
    quick = {"token_ns": (TELLING_NS // 17,) * 16}
    assert spread_of([stream(TOKENS, arrivals_ns=BURST, timings=quick)]).verdict is Verdict.INCONCLUSIVE


class Reader:
    """An arm whose answers of a case come as they are listed, one after the other."""

    def __init__(self, *answers: Stream) -> None:
        self.answers = list(answers)

    def generate(self, case: Case) -> Stream:
        return self.answers.pop(0)


def test_a_burst_counts_where_it_comes_again(stream: Callable[..., Stream]) -> None:
    case = {"c": Case(name="c", max_tokens=16, prompt="x")}
    burst = stream(TOKENS, arrivals_ns=BURST, timings=DECODED)
    steady = stream(TOKENS, arrivals_ns=EVENLY, timings=DECODED)
    other = stream(TOKENS, case="d", arrivals_ns=EVENLY, timings=DECODED)
    quick = stream(TOKENS, arrivals_ns=BURST, timings={"token_ns": (TELLING_NS // 17,) * 16})
    assert _confirmed(Reader(burst, burst, burst), case, [burst, other]).verdict is Verdict.BROKEN
    assert _confirmed(Reader(burst, steady), case, [burst, other]).verdict is Verdict.HELD
    # Asked again, it was made too quickly to tell: the others still do.
    assert _confirmed(Reader(quick), case, [burst, other]).verdict is Verdict.HELD
    assert _confirmed(Reader(quick), case, [burst]).verdict is Verdict.INCONCLUSIVE


PROGRAM = (
    SERVER
    + """\
most, pause, burst = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "burst"


class Handler(Quiet):
    def do_POST(self):
        body = self.asked()
        count = min(body["max_tokens"], most)
        ended = {"finish_reason": "length" if count == body["max_tokens"] else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": 1 + count}
        self.begin(200)
        if not body.get("stream"):
            answer = {"choices": [{"text": "a" * count} | ended], "usage": usage}
            self.wfile.write(json.dumps(answer).encode())
            return
        for _ in range(count):
            time.sleep(pause)
            if not burst:
                self.event({"choices": [{"text": "a"}]})
        self.event({"choices": [{"text": "a" * count if burst else ""} | ended], "usage": usage}, last=True)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[4])), Handler).serve_forever()
"""
)
POLICY = (
    TOY
    + """\
[arms.whole]
kind = "http"
command = [{words}]
details = false

[arms.streamed]
kind = "http"
command = [{words}]
details = false
streamed = true

[[cases]]
name = "short"
max_tokens = 3
prompt = "One"
logprobs = 0

[claims.same]
kind = "identity"
arms = ["whole", "streamed"]
cases = ["short"]
"""
)


@pytest.mark.parametrize(
    ("most", "pause", "way", "code", "said"),
    [
        # Three tokens a case; asked for more, the server shows that it streams, or that it does not.
        (200, 0.01, "stream", Exit.PASS, "pieces arrived over at least"),
        (200, 0.01, "burst", Exit.GATE_FAILED, "short-asked-for-64-tokens arrived in one burst"),
        # It says no more than five tokens to anybody: nobody knows, and the mend is named.
        (
            5,
            0.01,
            "stream",
            Exit.INCONCLUSIVE,
            "name in `cases` of this claim one more whose answer has at least 16",
        ),
    ],
)
def test_a_server_whose_cases_are_short_is_asked_for_more(
    tmp_path: Path, most: int, pause: float, way: str, code: Exit, said: str
) -> None:
    (tmp_path / "server.py").write_text(PROGRAM)
    words = [sys.executable, str(tmp_path / "server.py"), str(most), str(pause), way, "{port}"]
    text = POLICY.replace("{words}", ", ".join(f'"{word}"' for word in words))
    (tmp_path / "paritygate.toml").write_text(text)
    policy = load(tmp_path)
    checks = list(identity.run(policy, tmp_path, lambda line: None))
    assert exit_code(checks) is code, checks
    (arrivals,) = [check for check in checks if check.name == "identity/same/streamed/arrivals"]
    assert said in arrivals.headline
    (again,) = check_again(policy, tmp_path, arrivals.name, lambda line: None)
    assert (again.name, again.outcome) == (arrivals.name, arrivals.outcome)
