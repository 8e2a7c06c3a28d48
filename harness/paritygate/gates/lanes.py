"""Jobs side by side, as many as there are cores, their checks handed on as they come."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from paritygate.machine import this_machine
from paritygate.verdict import Check

Job = Callable[[], Iterable[Check]]


def side_by_side(jobs: list[Job]) -> Iterator[Check]:
    """The checks of all jobs; leaving early starts no further job, and a job that runs ends with its arm."""
    checks: queue.SimpleQueue[Check | BaseException | None] = queue.SimpleQueue()
    stopped = threading.Event()

    def run(job: Job) -> None:
        try:
            for check in job():
                checks.put(check)
                if stopped.is_set():
                    break
        except BaseException as error:  # the boundary that owns the thread: the error goes to the caller
            checks.put(error)
        finally:
            checks.put(None)

    pool = ThreadPoolExecutor(max_workers=max(1, this_machine().cores))
    try:
        for job in jobs:
            pool.submit(run, job)
        left = len(jobs)
        while left:
            item = checks.get()
            if item is None:
                left -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
