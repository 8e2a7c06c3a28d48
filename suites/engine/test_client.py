"""`Model` as every transport uses it: bounds, stops, failures of one row, cancelling, closing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tokenline.client import Model, request_of
from tokenline.errors import BackendError, CheckpointError, RequestError

PROMPT = list(range(40, 60))


@pytest.fixture
def fresh(tiny_checkpoint: Path) -> Iterator[Model]:
    with Model(str(tiny_checkpoint), backend="torch", dtype="float32", threads=1, parallel=2) as model:
        yield model


def test_a_result_has_the_documented_keys(tiny: Model) -> None:
    result = tiny.generate(PROMPT, max_tokens=4, ignore_eos=True)
    keys = "text prompt_token_ids token_ids logprobs finish_reason finish_cause stop_sequence truncated usage timings"
    assert list(result) == [*keys.split(), "manifest", "counters"]
    assert result["prompt_token_ids"] == PROMPT
    assert result["usage"] == {
        "prompt_tokens": 20,
        "completion_tokens": 4,
        "total_tokens": 24,
        "cached_tokens": result["counters"]["cached_tokens"],
    }
    assert len(result["timings"]["token_ns"]) == 3
    assert all(ns > 0 for ns in result["timings"]["token_ns"])


@pytest.mark.parametrize(("count", "cause"), [(0, "Length"), (1, "Length"), (2, "Length")])
def test_max_tokens_at_the_edge(tiny: Model, count: int, cause: str) -> None:
    result = tiny.generate(PROMPT, max_tokens=count, ignore_eos=True)
    assert (len(result["token_ids"]), result["finish_cause"], result["finish_reason"]) == (
        count,
        cause,
        "length",
    )
    assert result["counters"]["decode_forwards"] == max(0, count - 1)


def test_streamed_text_joined_is_the_whole_text(tiny: Model) -> None:
    whole = tiny.generate(PROMPT, max_tokens=40, temperature=1.5, seed=5)
    events = list(tiny.stream(PROMPT, max_tokens=40, temperature=1.5, seed=5))
    assert "".join(e.text for e in events) == whole["text"] == events[-1].result["text"]
    assert [e.token_id for e in events[:-1]] == whole["token_ids"]
    assert [e.index for e in events[:-1]] == list(range(len(whole["token_ids"])))
    assert [e for e in events if e.result is not None] == events[-1:]


def test_a_stop_string_ends_the_row_and_is_not_said(tiny: Model) -> None:
    printable = {token: -100.0 for token in range(94, 259)}
    settings = {"max_tokens": 60, "temperature": 1.2, "seed": 8, "logit_bias": printable}
    free = tiny.generate(PROMPT, **settings)
    stop = free["text"][20:23]
    at = free["text"].index(stop)
    result = tiny.generate(PROMPT, stop=[stop, "never"], **settings)
    assert result["text"] == free["text"][:at]
    assert (result["finish_cause"], result["finish_reason"]) == ("StopSequence", "stop")
    assert len(result["token_ids"]) < 60
    assert free["token_ids"][: len(result["token_ids"])] == result["token_ids"]


def test_end_of_sequence_is_not_pushed(tiny: Model) -> None:
    """With the end token biased so that it wins at once, nothing is said at all."""
    result = tiny.generate(PROMPT, max_tokens=9, logit_bias={258: 100.0})
    assert (result["token_ids"], result["text"]) == ([], "")
    assert (result["finish_cause"], result["finish_reason"]) == ("Eos", "stop")
    ignored = tiny.generate(PROMPT, max_tokens=9, logit_bias={258: 100.0}, ignore_eos=True)
    assert ignored["token_ids"] == [258] * 9


def test_a_repetition_loop_ends_the_row_only_when_asked(tiny: Model) -> None:
    settings = {"max_tokens": 120, "logit_bias": {70: 100.0}}
    assert tiny.generate(PROMPT, **settings)["finish_cause"] == "Length"
    result = tiny.generate(PROMPT, loop_detection=True, **settings)
    assert (result["finish_cause"], result["finish_reason"], len(result["token_ids"])) == (
        "RepetitionLoop",
        "stop",
        32,
    )


def test_the_context_bound_ends_the_row(tiny_checkpoint: Path, backend: str) -> None:
    with Model(str(tiny_checkpoint), backend=backend, threads=1, context_length=32) as model:
        result = model.generate(PROMPT, ignore_eos=True)
        assert (result["finish_cause"], result["finish_reason"]) == ("ContextExhausted", "length")
        assert result["usage"]["total_tokens"] == 32
        with pytest.raises(RequestError, match="the prompt has 32 tokens, the context 32") as caught:
            model.generate([5] * 32)
        assert caught.value.param == "prompt"
        assert model.generate([5] * 31, ignore_eos=True)["finish_cause"] == "ContextExhausted"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-30}, "repetition_penalty"),
        ({"repetition_penalty": 1e300}, "repetition_penalty"),
        ({"temperature": 1e-38}, "temperature"),
        ({"temperature": 1e308}, "temperature"),
        ({"dry_multiplier": 1e300}, "dry_multiplier"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"penalty_window": -2}, "penalty_window"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"stop": ["ok", ""]}, "stop"),
        ({"logprobs": 21}, "logprobs"),
        ({"logit_bias": {259: 1.0}}, "logit_bias"),
        ({"logit_bias": {3: 101.0}}, "logit_bias"),
        ({"loop_detection": {"max_period": 0}}, "loop_detection"),
        ({"tempreature": 1}, "tempreature"),
    ],
)
def test_a_bad_parameter_is_named(tiny: Model, params: dict, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        tiny.generate(PROMPT, **params)
    assert caught.value.param == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused(tiny: Model, prompt: object) -> None:
    with pytest.raises(RequestError, match="the prompt is empty"):
        tiny.generate(prompt)


def test_a_token_outside_the_vocabulary_is_refused(tiny: Model) -> None:
    with pytest.raises(RequestError, match="token 259 is outside the vocabulary"):
        tiny.generate([1, 259])
    with pytest.raises(RequestError, match="outside the vocabulary"):
        tiny.logits([-1])


def test_prompt_and_messages_together_are_refused(tiny: Model) -> None:
    with pytest.raises(RequestError, match="2 were given"):
        tiny.generate("hello", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(RequestError, match="0 were given"):
        tiny.generate()


def alive(model: Model) -> int:
    stats = model.stats()
    return stats["running"] + stats["queued"]


def wait_idle(model: Model) -> None:
    deadline = time.monotonic() + 10
    while alive(model):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_leaving_a_stream_early_frees_the_row(fresh: Model) -> None:
    for _ in range(20):
        for event in fresh.stream(PROMPT, ignore_eos=True):
            if event.index == 2:
                break
    wait_idle(fresh)


def test_a_cancelled_row_says_what_it_had_said(fresh: Model) -> None:
    generation = fresh.submit(request_of(PROMPT, ignore_eos=True))
    events = iter(generation)
    said = [next(events) for _ in range(3)]
    generation.cancel()
    result = generation.result()
    assert (result["finish_reason"], result["finish_cause"]) == ("cancelled", "Cancelled")
    assert result["token_ids"][:3] == [e.token_id for e in said]
    wait_idle(fresh)


def test_waiting_requests_run_in_order_and_all_answer(fresh: Model) -> None:
    expected = fresh.generate(PROMPT, max_tokens=5, ignore_eos=True)["token_ids"]
    waiting = [fresh.submit(request_of(PROMPT, max_tokens=5, ignore_eos=True)) for _ in range(7)]
    results = [g.result() for g in waiting]
    assert [r["token_ids"] for r in results] == [expected] * 7
    assert max(r["counters"]["max_rows"] for r in results) <= 2
    queued = [r["timings"]["queue_ns"] for r in results]
    assert queued[-1] > queued[0]


def test_a_waiting_request_can_be_cancelled(fresh: Model) -> None:
    running = [fresh.submit(request_of(PROMPT, max_tokens=400, ignore_eos=True)) for _ in range(2)]
    waiting = fresh.submit(request_of(PROMPT, max_tokens=5))
    waiting.cancel()
    assert waiting.result()["finish_cause"] == "Cancelled"
    for generation in running:
        generation.cancel()
    wait_idle(fresh)


def test_a_failing_prefill_ends_its_row_and_no_other(fresh: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    network = fresh._engine._model
    whole = type(network).hidden

    def hidden(self: object, ids: object, caches: object) -> object:
        if ids.shape[1] == 6:
            raise MemoryError("planted")
        return whole(self, ids, caches)

    monkeypatch.setattr(type(network), "hidden", hidden)
    healthy = fresh.submit(request_of(PROMPT, max_tokens=30, ignore_eos=True))
    broken = fresh.submit(request_of(PROMPT[:7], max_tokens=30))
    assert broken.result()["finish_cause"] == "Error"
    assert broken.result()["error"] == "MemoryError: planted"
    assert len(healthy.result()["token_ids"]) == 30
    wait_idle(fresh)
    assert fresh.cache_stats()["entries"] == 1  # the healthy prompt's


def test_rows_whose_logits_are_not_numbers_end_with_an_error(
    fresh: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = fresh._engine._model
    whole = type(network).logits
    monkeypatch.setattr(type(network), "logits", lambda self, hidden: whole(self, hidden) * float("nan"))
    result = fresh.generate(PROMPT, max_tokens=5)
    assert (result["finish_reason"], result["token_ids"]) == ("error", [])
    assert "not finite" in result["error"]


def test_the_prompt_cache_keeps_its_byte_limit(tiny_checkpoint: Path) -> None:
    state = 2 * 3 * 2 * 16 * 4  # keys and values, layers, heads, size, float32: bytes a token
    with Model(str(tiny_checkpoint), backend="torch", threads=1, cache_bytes=600 * state) as model:
        for start in range(12):
            model.generate([start, *PROMPT * 5], max_tokens=2, ignore_eos=True)
            stats = model.cache_stats()
            assert stats["bytes"] <= stats["limit_bytes"]
        assert 1 <= model.cache_stats()["entries"] < 12
        assert model.generate([11, *PROMPT * 5], max_tokens=1)["usage"]["cached_tokens"] == 100
        assert model.generate([0, *PROMPT * 5], max_tokens=1)["usage"]["cached_tokens"] == 0


def test_callbacks_see_every_event_once(fresh: Model) -> None:
    seen, done = [], threading.Event()
    generation = fresh.submit(request_of(PROMPT, max_tokens=10, ignore_eos=True))
    next(iter(generation))
    generation.subscribe(lambda event: (seen.append(event), done.set() if event.result else None))
    assert done.wait(10)
    assert [e.index for e in seen[:-1]] == list(range(1, 10))


def test_closing_ends_rows_and_refuses_more(tiny_checkpoint: Path) -> None:
    model = Model(str(tiny_checkpoint), backend="torch", threads=1)
    generation = model.submit(request_of(PROMPT, ignore_eos=True))
    model.close()
    assert generation.result()["finish_cause"] in ("Cancelled", "ContextExhausted")
    model.close()
    with pytest.raises(RuntimeError, match="closed"):
        model.logits([1])
    with pytest.raises(RuntimeError, match="closed"):
        model.submit(request_of(PROMPT))


def test_logprobs_bytes_are_the_text(tiny: Model) -> None:
    result = tiny.generate(PROMPT, max_tokens=30, logprobs=2, temperature=1.0, seed=2)
    joined = b"".join(bytes(entry["bytes"]) for entry in result["logprobs"])
    assert joined.decode(errors="replace") == result["text"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in result["logprobs"])
    assert all(entry["logprob"] <= entry["top_logprobs"][0]["logprob"] for entry in result["logprobs"])
    assert np.isfinite([entry["logprob"] for entry in result["logprobs"]]).all()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"backend": "jax"}, BackendError),
        ({"dtype": "int1"}, BackendError),
        ({"threads": 0}, BackendError),
        ({"parallel": 0}, BackendError),
        ({"cache_bytes": -1}, BackendError),
        ({"context_length": 1}, CheckpointError),
        ({"context_length": 4096}, CheckpointError),
    ],
)
def test_options_that_cannot_work_are_refused(tiny_checkpoint: Path, options: dict, error: type) -> None:
    with pytest.raises(error) as caught:
        Model(str(tiny_checkpoint), **options)
    assert caught.value.mend


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1e-6},
        {"temperature": 1e6},
        {"temperature": 1.0, "repetition_penalty": 1e-3},
        {"temperature": 1.0, "repetition_penalty": 1e3},
        {"temperature": 1.0, "dynatemp_range": 1e6},
    ],
)
def test_the_edges_of_what_is_allowed_still_draw(tiny: Model, settings: dict) -> None:
    """Logits within float32 give logprobs that are numbers, and the coldest temperature gives the greedy token."""
    result = tiny.generate(PROMPT, max_tokens=6, seed=1, logprobs=1, ignore_eos=True, **settings)
    assert result["finish_cause"] == "Length"
    assert np.isfinite([entry["logprob"] for entry in result["logprobs"]]).all()
    if settings["temperature"] < 1:
        assert result["token_ids"] == tiny.generate(PROMPT, max_tokens=6, ignore_eos=True)["token_ids"]


def test_a_consumer_that_throws_ends_its_own_row_and_no_other(fresh: Model) -> None:
    alone = fresh.generate(PROMPT, max_tokens=60, ignore_eos=True)
    heard = []

    def throws(event: object) -> None:
        heard.append(event)
        raise RuntimeError("the consumer is gone")

    # Rows wait for the engine's thread until this call returns, so that the consumer is there before the first event.
    rows = []

    def submit() -> None:
        rows.append(fresh.submit(request_of(PROMPT, max_tokens=400, ignore_eos=True)))
        rows[0].subscribe(throws)
        rows.append(fresh.submit(request_of(PROMPT, max_tokens=60, ignore_eos=True)))

    fresh._worker.call(submit).result()
    bad, neighbour = rows
    assert neighbour.result()["token_ids"] == alone["token_ids"]
    assert bad.result()["finish_cause"] == "Cancelled"
    assert len(heard) == 1
    assert alive(fresh) == 0


def test_a_prompt_that_nobody_read_is_not_counted(tiny_checkpoint: Path) -> None:
    with Model(str(tiny_checkpoint), backend="torch", threads=1, parallel=1) as model:
        running = model.submit(request_of([1, 2, 3], max_tokens=400, ignore_eos=True))
        next(iter(running))
        waiting = model.submit(request_of([4] * 50, max_tokens=5))
        waiting.cancel()
        assert waiting.result()["finish_cause"] == "Cancelled"
        assert waiting.result()["usage"]["prompt_tokens"] == 50
        running.cancel()
        running.result()
        assert model.stats()["prompt_tokens"] == 3
