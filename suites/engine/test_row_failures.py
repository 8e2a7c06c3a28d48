"""What breaks in one row ends that row: while it waits, in its prefill, in a step, in its draw, at its consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ticking import Ticking

from tokenline.client import Model, request_of
from tokenline.decode.sampling import Drawn
from tokenline.row import Event, Row

BAD = 77
OTHERS = {BAD: -100.0}
PROMPTS = ([*range(40, 60)], [*range(30, 37)], [5] * 40)
SETTINGS: tuple[dict[str, Any], ...] = ({}, {"temperature": 0.9, "seed": 3}, {"repetition_penalty": 1.3})


@pytest.fixture
def three(tiny_checkpoint: Path, backend: str) -> Iterator[Model]:
    with Model(str(tiny_checkpoint), backend=backend, dtype="float32", threads=1) as model:
        yield model


def together(model: Model, bad: dict[str, Any] | None, tokens: int = 24) -> tuple[list[dict], dict | None]:
    """Three healthy rows, and the bad one between them, from one tick on."""

    def submit() -> list[Any]:
        healthy = [
            request_of(prompt, max_tokens=tokens, ignore_eos=True, logit_bias=OTHERS, **settings)
            for prompt, settings in zip(PROMPTS, SETTINGS, strict=True)
        ]
        requests = healthy if bad is None else [healthy[0], request_of([9, 8, 7], **bad), *healthy[1:]]
        return [model.submit(request) for request in requests]

    results = [generation.result() for generation in model._worker.call(submit).result()]
    failed = results.pop(1) if bad is not None else None
    assert model.stats()["running"] == 0
    return results, failed


def unharmed(model: Model, expected: list[dict], bad: dict[str, Any]) -> dict[str, Any]:
    results, failed = together(model, bad)
    assert [each["token_ids"] for each in results] == [each["token_ids"] for each in expected]
    assert max(each["counters"]["max_rows"] for each in results) == 4
    assert failed is not None
    assert failed["finish_cause"] == "Error"
    return failed


# Says BAD from its first token on.
FORCED = {"logit_bias": {BAD: 100.0}, "max_tokens": 24, "ignore_eos": True}


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("synchronous", [False, True])
def test_a_step_that_fails_half_way_ends_the_row_that_is_the_cause(
    three: Model, monkeypatch: pytest.MonkeyPatch, history: bool, synchronous: bool
) -> None:
    """The second of three layers throws while the batch holds a token: what the first layer appended is undone."""
    expected, _ = together(three, None)
    three._engine.pipelined = not synchronous
    network = three._engine._model
    held: list[Any] = []
    hidden, layer = network.hidden, network._layers[1]
    blocks = type(layer).blocks

    def noted(ids: Any, caches: Any) -> Any:
        held[:] = [ids]
        return hidden(ids, caches)

    def failing(self: Any, *arguments: Any) -> Any:
        if self is layer and held[0].shape[1] == 1 and (held[0] == BAD).any().item():
            raise MemoryError("planted")
        return blocks(self, *arguments)

    monkeypatch.setattr(network, "hidden", noted)
    monkeypatch.setattr(type(layer), "blocks", failing)
    failed = unharmed(three, expected, FORCED | ({"presence_penalty": 0.1} if history else {}))
    assert failed["error"] == "MemoryError: planted"
    assert failed["token_ids"] == ([BAD] if synchronous else [])


def test_a_draw_that_fails_ends_the_row_that_is_the_cause(
    three: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = together(three, None)
    whole = three._engine._drawn

    def drawn(logits: Any, rows: Any, unread: int) -> Drawn:
        if any(row.request.stop == ("bad",) and len(row.generated) == 5 for row in rows):
            raise ValueError("planted")
        return whole(logits, rows, unread)

    monkeypatch.setattr(three._engine, "_drawn", drawn)
    failed = unharmed(three, expected, FORCED | {"stop": ["bad"]})
    assert failed["error"] == "ValueError: planted"
    assert failed["token_ids"] == [BAD] * 5


def test_a_token_that_cannot_be_taken_ends_its_row(three: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some code of the row itself throws: its text, its answer, its grammar."""
    expected, _ = together(three, None)
    whole = Row.stop_text

    def stop_text(self: Row, token: int) -> bool:
        if token == BAD and len(self.generated) > 3:
            raise KeyError("planted")
        return whole(self, token)

    monkeypatch.setattr(Row, "stop_text", stop_text)
    failed = unharmed(three, expected, FORCED)
    assert failed["error"] == "KeyError: 'planted'"


def test_a_text_that_cannot_be_ended_is_an_error_and_an_end(three: Model) -> None:
    def broken() -> str:
        raise ValueError("planted")

    def submit() -> Any:
        generation = three.submit(request_of([1, 2], max_tokens=3, ignore_eos=True))
        generation._row._stream.finish = broken  # type: ignore[union-attr, method-assign]
        return generation

    result = three._worker.call(submit).result().result()
    assert (result["finish_cause"], result["error"]) == ("Error", "ValueError: planted")
    assert len(result["token_ids"]) == 3
    assert three.generate([1, 2], max_tokens=3, ignore_eos=True)["token_ids"] == result["token_ids"]


def test_a_read_that_fails_ends_the_batch_and_those_that_wait_run(
    three: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells which row is the cause: the batch is one computation. The engine goes on with the next."""
    expected = three.generate(PROMPTS[0], max_tokens=9, ignore_eos=True)
    read, fail = three._ops.read, [True]

    def failing(arrays: Any) -> Any:
        if len(three._engine.rows) == 4 and fail.pop():
            raise RuntimeError("planted")
        return read(arrays)

    monkeypatch.setattr(three._ops, "read", failing)
    asked = request_of(PROMPTS[0], max_tokens=9, ignore_eos=True)
    running = three._worker.call(lambda: [three.submit(asked) for _ in range(6)]).result()
    results = [generation.result() for generation in running]
    assert [each["finish_cause"] for each in results] == ["Error"] * 4 + ["Length"] * 2
    assert {each.get("error") for each in results} == {"RuntimeError: planted", None}
    assert results[-1]["token_ids"] == expected["token_ids"]
    assert three.stats()["kv_bytes"] == 0


def at_a_token(event: Event) -> bool:
    return event.index == 2


def at_the_end(event: Event) -> bool:
    return event.result is not None


@pytest.mark.parametrize("when", [at_a_token, at_the_end])
def test_a_row_whose_consumer_throws_ends_alone(when: Callable[[Event], bool]) -> None:
    """Below `Generation`, which guards its own consumers: nothing of the engine trusts what it calls."""
    house = Ticking()

    def emit(event: Event) -> None:
        if when(event):
            raise OSError("planted")

    neighbour, bad = house.submit(max_tokens=9), house.submit(max_tokens=6, emit=emit)
    house.run()
    assert (neighbour.cause, len(neighbour.generated)) == ("Length", 9)
    assert neighbour.counters.max_rows == 2
    assert bad.cause == ("Error" if when is at_a_token else "Length")
    assert house.engine.live_bytes == 0


def test_a_row_is_cancelled_within_a_tick_wherever_it_is() -> None:
    house = Ticking(parallel=3, prompt_concurrency=1)
    decoding, reading = house.submit(3, 100), house.submit(900, 100)
    house.tick(4)
    waiting = house.submit(3, 100)
    states = {slot["state"] for slot in house.scheduler.slots()}
    assert states == {"decoding", "prefilling", "queued"}
    assert [len(row.caches) for row in (decoding, reading, waiting)] == [0, 1, 0]
    for row in (waiting, reading, decoding):
        row.cancelled = True
        house.tick()
        assert row.cause == "Cancelled"
    assert house.scheduler.idle
    assert house.engine.live_bytes == 0
    assert waiting not in house.admitted
