"""The rows behind one HTTP request, from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.types import Receive

from tokenline.errors import QueueFull, RequestError
from tokenline.request import Request
from tokenline.server.errors import Busy, Failed, TimedOut, Unavailable

if TYPE_CHECKING:
    from tokenline.client import Model
    from tokenline.generation import Generation
    from tokenline.row import Event


class Rows:
    """Submits requests and hands on their events as they come; `cancel` is always safe and ends what still runs."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._generations: list[Generation] = []
        # An error ends the events, and so does None: the client has gone.
        self._events: asyncio.Queue[tuple[int, Event] | RequestError | None] = asyncio.Queue()
        self.results: list[dict[str, Any] | None] = []

    @property
    def finished(self) -> list[dict[str, Any]] | None:
        """The results, once every row has one."""
        done = [result for result in self.results if result is not None]
        return done if len(done) == len(self.results) else None

    @property
    def prompt_lengths(self) -> list[int]:
        """Tokens of each row's prompt."""
        return [generation.prompt_length for generation in self._generations]

    async def submit(self, requests: Sequence[Request]) -> None:
        """Raises RequestError, with no row left running, when one of them cannot run."""
        self.results = [None] * len(requests)
        # In a thread: a long prompt takes a while to encode, and others are being streamed meanwhile.
        # Not cancelled with the request: each row is noted down where it is made, so that `cancel` finds it.
        await anyio.to_thread.run_sync(self._submit, requests)
        loop = asyncio.get_running_loop()
        for index, generation in enumerate(self._generations):
            generation.subscribe(self._listener(loop, index))

    def _submit(self, requests: Sequence[Request]) -> None:
        most = self._model.most_rows
        if len(requests) > most:
            raise RequestError(
                f"{len(requests)} answers were asked for, {most} can run or wait here",
                "ask for fewer",
                param="n",
            )
        try:
            for request in requests:
                self._generations.append(self._model.submit(request))
        except RequestError:
            self.cancel()
            raise
        except QueueFull as error:
            self.cancel()
            raise Busy(error.what, error.mend, retry_after_s=error.retry_after_s) from None

    def _listener(self, loop: asyncio.AbstractEventLoop, index: int) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            # The loop is closed when the server was stopped for good: then nobody listens any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

        return listen

    async def events(self, idle_s: float | None = None) -> AsyncIterator[tuple[int, Event] | None]:
        """(row, event) in the order of their making, until every row has its result, or the client has gone; None
        when nothing came for `idle_s` seconds. Raises RequestError for a row that failed, and for what stopped them.
        """
        while None in self.results:
            try:
                async with asyncio.timeout(idle_s):
                    arrived = await self._events.get()
            except TimeoutError:
                yield None
                continue
            if arrived is None:
                return
            if isinstance(arrived, RequestError):
                raise arrived
            index, event = arrived
            if event.result is not None:
                _raise_if_failed(event.result)
                self.results[index] = event.result
            yield index, event

    @contextlib.asynccontextmanager
    async def watched(self, receive: Receive, timeout_s: float | None = None) -> AsyncIterator[None]:
        """While inside: when the client disconnects, its rows are cancelled and `events` ends; when the time is up, it
        raises TimedOut. After: no row runs.
        """
        watcher = asyncio.create_task(self._watch(receive))
        timer = None
        if timeout_s is not None:
            late = TimedOut(
                f"the answer took longer than {timeout_s:g} s", "ask for less, or try again later"
            )
            timer = asyncio.get_running_loop().call_later(timeout_s, self.stop, late)
        try:
            yield
        finally:
            watcher.cancel()
            if timer is not None:
                timer.cancel()
            self.cancel()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.cancel()
        self._events.put_nowait(None)

    def stop(self, error: RequestError) -> None:
        """End the rows and have `events` raise the error; on the event loop's thread."""
        self.cancel()
        self._events.put_nowait(error)

    def cancel(self) -> None:
        for generation in self._generations:
            generation.cancel()


def _raise_if_failed(result: dict[str, Any]) -> None:
    match result["finish_reason"]:
        case "error" if "error_param" in result:
            raise RequestError(result["error"], "loosen it", param=result["error_param"])
        case "error":
            raise Failed(result["error"])
        case "cancelled":
            raise Unavailable("the answer was cancelled", "ask again when the server runs")
