"""Who waits, in which order, and how many may: what a client is told about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenline.client import Model, request_of
from tokenline.errors import BackendError, QueueFull

PROMPT = list(range(40, 60))
LONG = {"max_tokens": 400, "ignore_eos": True}


@pytest.fixture
def narrow(tiny_checkpoint: Path) -> Iterator[Model]:
    """One row at a time, and three that wait."""
    with Model(str(tiny_checkpoint), backend="torch", threads=1, parallel=1, max_queue=3) as model:
        yield model


def test_a_full_queue_refuses_and_says_when_to_come_again(narrow: Model) -> None:
    narrow.generate(PROMPT, max_tokens=3, ignore_eos=True)
    running = narrow.submit(request_of(PROMPT, **LONG))
    next(iter(running))
    waiting = [narrow.submit(request_of(PROMPT, **LONG)) for _ in range(3)]
    with pytest.raises(QueueFull, match="3 requests are waiting: try again in 1 s") as refused:
        narrow.submit(request_of(PROMPT))
    assert refused.value.retry_after_s == 1
    waiting.pop().cancel()
    while narrow.stats()["queued"] == 3:
        pass
    for generation in (running, *waiting, narrow.submit(request_of(PROMPT, **LONG))):
        generation.cancel()
        assert generation.result()["finish_cause"] == "Cancelled"
    with pytest.raises(BackendError, match="max_queue 0 lets nothing run"):
        Model("nothing", max_queue=0)


def test_a_higher_priority_runs_first_and_equal_ones_in_order(narrow: Model) -> None:
    ended: list[int] = []
    narrow.observe(lambda result: ended.append(result["usage"]["prompt_tokens"]))

    def submit() -> list:
        asked = [(3, 0), (4, 2), (5, 2)]
        return [
            narrow.submit(request_of(PROMPT[:n], max_tokens=2, priority=p, ignore_eos=True)) for n, p in asked
        ]

    for generation in narrow._worker.call(submit).result():
        generation.result()
    assert ended[-3:] == [4, 5, 3]


def test_slots_and_counts_tell_what_runs_and_what_ran(narrow: Model) -> None:
    results: list[dict] = []
    narrow.observe(results.append)
    narrow.observe(lambda result: 1 / 0)  # one that fails takes nothing from the others
    done = narrow.generate(PROMPT, max_tokens=3, ignore_eos=True)
    hit = narrow.generate(PROMPT, max_tokens=2, ignore_eos=True)
    assert results == [done, hit]
    running = narrow.submit(request_of(PROMPT, priority=1, **LONG))
    next(iter(running))
    waiting = narrow.submit(request_of(PROMPT[:7]))
    first, second = narrow.slots()
    assert (first.pop("seconds"), second.pop("seconds")) > (0, 0)
    assert 1 <= first.pop("generated_tokens") < 400
    shared = {"lane": ""}
    assert first == shared | {
        "id": 3,
        "state": "decoding",
        "prompt_tokens": 20,
        "cached_tokens": 19,
        "prefilled_tokens": 20,
        "max_tokens": 400,
        "priority": 1,
    }
    assert second == shared | {
        "id": 4,
        "state": "queued",
        "prompt_tokens": 7,
        "cached_tokens": 0,
        "prefilled_tokens": 0,
        "generated_tokens": 0,
        "max_tokens": None,
        "priority": 0,
    }
    running.cancel()
    waiting.cancel()
    said = running.result()["usage"]["completion_tokens"] + waiting.result()["usage"]["completion_tokens"]
    stats = narrow.stats()
    assert stats["finished"] == {"Length": 2, "Cancelled": 2}
    # The one that waited was not read.
    assert (stats["prompt_tokens"], stats["cached_tokens"]) == (20 + 20 + 20, 19 + 19)
    assert stats["generated_tokens"] == 5 + said
    assert {name: stats[name] for name in ("running", "queued", "prefilling", "parallel", "max_queue")} == {
        "running": 0,
        "queued": 0,
        "prefilling": 0,
        "parallel": 1,
        "max_queue": 3,
    }
