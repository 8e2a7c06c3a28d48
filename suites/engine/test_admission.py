"""Who is admitted when: turns, lanes, prompts read by turns, bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ticking import PLACE, Ticking, row_of

from tokenline.budget import ALLOWANCE
from tokenline.cli.options import parsed_bytes
from tokenline.client import Model, request_of
from tokenline.errors import BackendError, OverBudget, RequestError
from tokenline.row import Row
from tokenline.waiting import HEAD_START_S, WaitingRows


@pytest.mark.parametrize(("busy", "other"), [("", "adapter"), ("adapter", ""), ("one", "two")])
def test_a_lane_is_not_starved_by_sustained_load_in_another(busy: str, other: str) -> None:
    """Every tick brings a row of the busy lane; the one of the other lane runs once those before it have ended."""
    house = Ticking(parallel=3)
    before = [house.submit(lane=busy) for _ in range(5)]
    house.tick()
    waiting = house.submit(lane=other)
    after: list[Row] = []
    for _ in range(200):
        after.append(house.submit(lane=busy))
        house.tick()
        lanes = {row.lane for row in house.engine.rows}
        assert len(lanes) <= 1
        if waiting.cause is not None:
            break
    assert waiting.cause is not None, f"the lane {other!r} was starved by the lane {busy!r}"
    assert house.admitted[: len(before) + 1] == [*before, waiting]
    house.run()
    assert house.admitted == [*before, waiting, *after]  # and hands back, in order


def test_rows_of_one_lane_share_a_batch_and_others_do_not() -> None:
    house = Ticking()
    rows = [house.submit(lane=lane, max_tokens=9) for lane in ("a", "a", "b", "b", "a")]
    house.run()
    assert [row.counters.max_rows for row in rows] == [2, 2, 2, 2, 1]


def test_a_priority_is_a_head_start_and_no_more() -> None:
    """A low row is overtaken by high ones that come within the head start, and by none that comes later."""
    second = 1_000_000_000
    low = row_of()
    low.clock.submitted = 1000 * second
    ages = [-5, 1, 29, 31, 100]
    high = []
    for age in ages:
        row = row_of(priority=3)
        row.clock.submitted = (1000 + age) * second
        high.append(row)
    waiting = WaitingRows(10)
    for row in (*high[::-1], low):
        waiting.add(row, lambda: 0, 1)
    assert HEAD_START_S == 10
    assert list(waiting.rows()) == [*high[:3], low, *high[3:]]


def test_a_higher_priority_of_the_running_lane_goes_before_a_waiting_lane() -> None:
    house = Ticking(parallel=2)
    house.submit(max_tokens=20)
    house.tick()
    other = house.submit(lane="other")
    urgent = house.submit(priority=1)
    house.run()
    assert house.admitted[1:] == [urgent, other]


@pytest.mark.parametrize(("at_once", "order"), [(1, "aaabbbcc"), (2, "abababcc"), (3, "abcabcab")])
def test_prompts_are_read_by_turns(at_once: int, order: str) -> None:
    """Prompts of 3, 3 and 2 pieces (the last token is one of its own)."""
    house = Ticking(prompt_concurrency=at_once)
    names = {house.submit(prompt): name for prompt, name in ((500, "a"), (510, "b"), (200, "c"))}
    house.tick(8)
    assert "".join(names[row] for row in house.read) == order


def test_a_running_row_waits_for_one_piece_and_one_step_at_most() -> None:
    house = Ticking(prompt_concurrency=3)
    running = house.submit(max_tokens=60)
    house.tick(3)
    for _ in range(3):
        house.submit(700)
    for _ in range(12):
        said, read = len(running.generated), len(house.read)
        house.tick()
        assert len(running.generated) == said + 1
        assert len(house.read) <= read + 1


def test_a_row_that_does_not_fit_waits_and_those_behind_it_wait_too() -> None:
    """256 places hold a row of up to 256 tokens; a longer one takes 512."""
    house = Ticking(budget=3 * 256)
    first, second = house.submit(3, 6), house.submit(3, 30)
    big = house.submit(300, 5)
    small = house.submit(3, 5)
    while first.cause is None:
        house.tick()
        assert house.admitted == [first, second]
    while second.cause is None:
        house.tick()
        assert house.admitted == [first, second]  # two rows of 512 places are more than 768
    house.run()
    assert house.admitted == [first, second, big, small]
    assert small.counters.max_rows == 1


def test_the_padding_of_a_short_row_beside_a_long_one_counts() -> None:
    house = Ticking(budget=3 * 256)
    long, short = house.submit(200, 100), house.submit(3, 5)
    house.tick(5)
    assert house.admitted == [long]
    house.run()
    assert house.admitted == [long, short]
    wide = Ticking(budget=4 * 256)
    wide.submit(200, 100)
    wide.submit(3, 5)
    wide.tick(5)
    assert len(wide.admitted) == 2


def test_live_rows_never_take_more_than_the_budget() -> None:
    house = Ticking(budget=2000, parallel=8, prompt_concurrency=8)
    lengths = [(3, 300), (250, 20), (600, 100), (10, 500), (3, 3), (3, 3), (900, 90), (250, 5), (20, 250)]
    rows = [house.submit(prompt, tokens) for prompt, tokens in lengths]
    most = 0
    while not house.scheduler.idle:
        house.tick()
        most = max(most, house.engine.live_bytes)
        assert house.engine.live_bytes <= 2000 * PLACE
    assert [len(row.generated) for row in rows] == [tokens for _, tokens in lengths]
    assert max(row.counters.max_rows for row in rows) >= 2
    assert most > 1000 * PLACE
    assert house.scheduler.stats()["kv_budget_bytes"] == 2000 * PLACE


def test_a_row_without_a_bound_is_projected_by_an_allowance_and_then_by_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Allowed 100 tokens beyond its prompt it leaves room for another row; once it has outgrown them it does not."""
    monkeypatch.setattr("tokenline.budget.ALLOWANCE", 100)
    monkeypatch.setattr("tokenline.budget.STEP", 16)
    house = Ticking(budget=3 * 256)
    free = house.submit(3, None)
    other = house.submit(3, 4)
    while other.cause is None:
        house.tick()
    assert free.counters.max_rows == 2
    while len(free.history) < 256:
        house.tick()
    late = house.submit(3, 4)
    house.tick(100)
    assert (free.cause, late.cause) == (None, None)
    assert late not in house.admitted
    free.cancelled = True
    house.run()
    assert late.cause == "Length"
    assert ALLOWANCE == 4096


@pytest.fixture
def tight(tiny_checkpoint: Path) -> Iterator[Model]:
    """The tiny llama keeps 2 * 3 layers * 2 heads * 16 entries * 4 bytes for a token: room for 768 of them."""
    with Model(str(tiny_checkpoint), backend="torch", threads=1, kv_budget=768 * 768) as model:
        yield model


def test_a_request_that_alone_exceeds_the_budget_is_refused_by_name(tight: Model) -> None:
    assert tight.stats()["kv_budget_bytes"] == 768 * 768
    with pytest.raises(
        OverBudget, match="may come to 770 tokens, memory is kept for 768: lower max_tokens"
    ) as refused:
        tight.submit(request_of([1] * 10, max_tokens=760))
    assert refused.value.param == "max_tokens"
    with pytest.raises(OverBudget, match="memory is kept for 768: shorten the prompt") as refused:
        tight.submit(request_of([1] * 768))
    assert refused.value.param == "prompt"
    fits = tight.generate([1] * 10, max_tokens=758, ignore_eos=True)
    assert len(fits["token_ids"]) == 758


def test_an_answer_without_a_bound_ends_where_memory_ends(tight: Model) -> None:
    result = tight.generate([1] * 700, ignore_eos=True)
    assert (result["finish_cause"], result["usage"]["total_tokens"]) == ("ContextExhausted", 768)
    assert result["timings"]["truncated_by"] == "context"


def test_a_crowd_within_a_budget_is_answered_whole(tight: Model) -> None:
    alone = tight.generate([1] * 10, max_tokens=200, ignore_eos=True)["token_ids"]
    crowd = [tight.submit(request_of([1] * 10, max_tokens=200, ignore_eos=True)) for _ in range(9)]
    done = threading.Event()
    most = []
    watcher = threading.Thread(
        target=lambda: [most.append(tight.stats()["kv_bytes"]) for _ in iter(done.is_set, True)]
    )
    watcher.start()
    results = [generation.result() for generation in crowd]
    done.set()
    watcher.join()
    assert [result["token_ids"] for result in results] == [alone] * 9
    assert max(result["counters"]["max_rows"] for result in results) == 3
    assert 0 < max(most) <= 768 * 768


def test_a_budget_is_never_more_than_what_is_free(tiny_checkpoint: Path) -> None:
    with Model(str(tiny_checkpoint), backend="torch", kv_budget=1 << 60) as model:
        assert 1 << 20 < model.stats()["kv_budget_bytes"] < 1 << 50
    with pytest.raises(BackendError, match=r"may take 1000 bytes, a row takes 196608 at least"):
        Model(str(tiny_checkpoint), backend="torch", kv_budget=1000)
    with pytest.raises(BackendError, match="holds nothing"):
        Model(str(tiny_checkpoint), backend="torch", kv_budget=0)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 << 20), ("2G", 2 << 30), ("2g", 2 << 30), ("64k", 64 << 10), ("1000", 1000)],
)
def test_a_size_is_bytes_or_powers_of_1024(text: str, size: int) -> None:
    assert parsed_bytes("--kv-budget", text) == size


@pytest.mark.parametrize("text", ["", "M", "1.5G", "-1", "2GB", "two", "١M"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="write it like 512M or 2G"):
        parsed_bytes("--kv-budget", text)
