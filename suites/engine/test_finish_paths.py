"""Every path that decides a row's end decides alike: the same tokens through prefill's first token, a row alone
(pipelined and not), a row among others, and a burst of tokens.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from toy_models import Scripted, scripted_tokenizer

from tokenline import row as row_module
from tokenline.budget import ByteBudget
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.decode.sampling import RowParameters
from tokenline.engine import Engine
from tokenline.ops import open_ops
from tokenline.prompt_cache import PromptCache
from tokenline.request import LoopDetection, Request
from tokenline.result import result_of
from tokenline.row import Event, Row, Taken
from tokenline.scheduler import Limits, Scheduler

PIECES = ["a", "b", "x\n", "\nx"]
LINE, DEDENT, END = 2, 3, 4
TOKENIZER = scripted_tokenizer(PIECES)
PROMPT = [0, 1, 0]

# In the order that decides between two causes on one token (mlxcel #2168), and what each is told as.
CAUSES = {
    "eos": ("Eos", "stop", False),
    "stop": ("StopSequence", "stop", False),
    "bound": ("GenerationBound", "length", True),
    "structured": ("StructuredStop", "stop", False),
    "length": ("Length", "length", False),
    "context": ("ContextExhausted", "length", True),
    "loop": ("RepetitionLoop", "stop", False),
}
PAIRS = [*((cause,) for cause in CAUSES), *combinations(CAUSES, 2)]
OPS = open_ops("torch", "float32", 1)


def script_of(due: tuple[str, ...], *, first: bool) -> list[int]:
    """Tokens of which the last is due to end the row, by every cause in `due`: "x" on a line of its own, not indented,
    for the second time; or, where the first token is the last, a line that is not indented."""
    if first:
        return [END if "eos" in due else DEDENT]
    return [LINE, END if "eos" in due else LINE]


def row_of(due: tuple[str, ...], script: list[int], told: list[Event] | None = None) -> Row:
    last = len(script)
    request = Request(
        prompt_token_ids=tuple(PROMPT),
        max_tokens=last if "length" in due else None,
        stop=(("\nx",) if "stop" in due else ()),
        min_indent=2 if "bound" in due else 0,
        loop_detection=LoopDetection(max_period=1, repeats=2, min_tokens=2) if "loop" in due else None,
    )
    row = Row(
        request=request,
        prompt=PROMPT,
        plan=PrefillPlan.of(len(PROMPT)),
        parameters=RowParameters(request.sampling, 0, None),
        tokenizer=TOKENIZER,
        max_tokens=request.max_tokens if request.max_tokens is not None else 30,
        context_length=len(PROMPT) + last if "context" in due else 900,
        free_unused=lambda: None,
        emit=([] if told is None else told).append,
        finished=lambda row: result_of(row, {}),
    )
    if "structured" in due:
        row.structured_stopped = lambda: row.position >= last  # a grammar that is complete there
    return row


def engine_of(script: list[int], *, pipelined: bool) -> Engine:
    model = Scripted(OPS, len(PIECES) + 1, len(PROMPT), [*script, *([0, 1] * 40)])
    return Engine(OPS, model, PromptCache(0), "toy", pipelined=pipelined)


def run(script: list[int], row: Row, *, pipelined: bool = True) -> None:
    engine = engine_of(script, pipelined=pipelined)
    scheduler = Scheduler(engine, ByteBudget.of(OPS, engine._model, None), Limits(1))
    scheduler.submit(row)
    for _ in range(200):
        if scheduler.idle:
            return
        scheduler.tick()
    raise AssertionError("a row did not end")


def run_together(script: list[int], rows: list[Row]) -> None:
    engine = engine_of(script, pipelined=True)
    for row in rows:
        engine.open(row)
        while not engine.prefill(row):
            pass
    while engine.rows:
        engine.step()


def prefill_first(due: tuple[str, ...], told: list[Event]) -> None:
    script = script_of(due, first=True)
    run(script, row_of(due, script, told))


def alone(due: tuple[str, ...], told: list[Event], *, pipelined: bool = True) -> None:
    script = script_of(due, first=False)
    run(script, row_of(due, script, told), pipelined=pipelined)


def among_others(due: tuple[str, ...], told: list[Event]) -> None:
    script = script_of(due, first=False)
    row = row_of(due, script, told)
    # The others say the same without a cause of their own, and go on to their max tokens.
    others = [row_of((), script) for _ in range(2)]
    run_together(script, [others[0], row, others[1]])
    assert row.counters.max_rows == 3
    assert {str(other.cause) for other in others} == {"Eos" if "eos" in due else "Length"}


def burst(due: tuple[str, ...], told: list[Event]) -> None:
    """As a verify step hands on several tokens at once: the row looks at none after its end."""
    script = script_of(due, first=False)
    row = row_of(due, script, told)
    cause = row.take([Taken(token) for token in (*script, 0, 1, 0)])
    assert cause is not None
    row.finish(cause)


PATHS: dict[str, Callable[[tuple[str, ...], list[Event]], None]] = {
    "prefill's first": prefill_first,
    "alone": alone,
    "alone, synchronous": lambda due, told: alone(due, told, pipelined=False),
    "among others": among_others,
    "burst": burst,
}


@pytest.mark.parametrize("due", PAIRS, ids="+".join)
@pytest.mark.parametrize("path", PATHS)
def test_one_cause_on_every_path(path: str, due: tuple[str, ...]) -> None:
    first = path == "prefill's first"
    if first:
        # A loop is at least two tokens long: the first token of a row ends none.
        due = tuple(cause for cause in due if cause != "loop") or ("length",)
    script = script_of(due, first=first)
    told: list[Event] = []
    PATHS[path](due, told)
    result: dict[str, Any] = told[-1].result
    cause, reason, truncated = CAUSES[due[0]]
    assert (result["finish_cause"], result["finish_reason"], result["truncated"]) == (
        cause,
        reason,
        truncated,
    )
    pushed = script[:-1] if "eos" in due else script
    assert result["token_ids"] == pushed
    assert [event.token_id for event in told if event.token_id is not None] == pushed
    assert "".join(event.text for event in told) == result["text"]
    said = "".join(PIECES[token] for token in pushed)
    if "eos" not in due and "stop" in due:
        said = said[: said.rindex("\nx")]
    elif "eos" not in due and "bound" in due:
        said = said[: said.rindex("\nx") + 1]
    assert result["text"] == said
    bounds = {"GenerationBound": "indentation", "ContextExhausted": "context"}
    assert result["timings"]["truncated_by"] == bounds.get(cause)


@pytest.mark.parametrize("pipelined", [True, False])
def test_no_token_at_all_and_one(pipelined: bool) -> None:
    for limit in (0, 1):
        told: list[Event] = []
        row = row_of(("length",), [0] * limit, told)
        run([0], row, pipelined=pipelined)
        assert row.generated == [0] * limit
        assert str(row.cause) == "Length"
        assert told[-1].result["text"] == "a" * limit


def test_time_is_counted_from_the_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that a token takes 10 ms of: a bound of 25 ms is met by the fourth token."""
    row = row_of((), [0])
    now = [0]
    monkeypatch.setattr(row_module, "time", types.SimpleNamespace(monotonic_ns=lambda: now[0]))
    row.request = Request(prompt_token_ids=tuple(PROMPT), max_time_ms=25)
    causes = []
    for _ in range(4):
        now[0] += 10_000_000
        causes.append(row.take([Taken(0)]))
    assert [None if cause is None else str(cause) for cause in causes] == [
        None,
        None,
        None,
        "GenerationBound",
    ]
    row.finish(causes[-1])
    assert result_of(row, {})["timings"]["truncated_by"] == "time"


def test_a_bound_of_time_ends_a_row_of_a_real_engine(tiny: Any) -> None:
    result = tiny.generate([1, 2, 3], max_time_ms=1, ignore_eos=True, max_tokens=1500)
    assert result["finish_cause"] == "GenerationBound"
    assert result["timings"]["token_ns"]
    assert len(result["token_ids"]) < 1500
    assert sum(result["timings"]["token_ns"]) >= 1_000_000
