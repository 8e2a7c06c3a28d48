"""The one thread that computes: what it runs between calls, and that it runs nothing after the last one."""

from __future__ import annotations

import threading

import pytest

from tokenline.worker import Worker


def test_a_tick_runs_until_it_has_nothing_more_to_do() -> None:
    worker, left, idle = Worker("t"), [3], threading.Event()

    def tick() -> bool:
        left[0] -= 1
        if left[0] <= 0:
            idle.set()
        return left[0] > 0

    worker.ticks(tick)
    assert idle.wait(10)
    worker.close(lambda: None)
    assert left[0] <= 0


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_nothing_ticks_after_the_last_call() -> None:
    """The thread comes round again before it is told to end: whoever closes is slow to say so."""
    worker, state, ticked_after = Worker("t"), {"open": True}, []
    worker.ticks(lambda: bool(state["open"] or ticked_after.append(True)))
    told = worker._calls.put
    turned = threading.Event()

    class Slow:
        def put(self, call: object) -> None:
            if call is None:
                turned.wait(0.3)
            told(call)  # type: ignore[arg-type]

        def __getattr__(self, name: str) -> object:
            return getattr(calls, name)

    calls, worker._calls = worker._calls, Slow()  # type: ignore[assignment]
    worker.close(lambda: state.update(open=False))
    assert ticked_after == []


def test_a_closed_worker_refuses_calls_and_a_second_close_does_nothing() -> None:
    worker = Worker("t")
    worker.close(lambda: None)
    worker.close(lambda: pytest.fail("closed twice"))
    with pytest.raises(RuntimeError, match="closed"):
        worker.call(lambda: 1).result()
