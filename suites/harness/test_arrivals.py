"""When a streamed answer came: as it was made or in one burst, by the server's clock or, without it, by ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paritygate.case import Case
from paritygate.compare.arrivals import TELLING_NS, spread_of
from paritygate.gates.identity import _confirmed
from paritygate.stream import Stream
from paritygate.verdict import Verdict

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
        ({"arrivals_ns": None}, Verdict.NOT_RUN, "no streamed answer was long enough"),
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
    assert spread_of([stream(TOKENS, arrivals_ns=BURST, timings=quick)]).verdict is Verdict.NOT_RUN


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
    assert _confirmed(Reader(quick), case, [burst]).verdict is Verdict.NOT_RUN
