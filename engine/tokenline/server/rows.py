"""The rows behind one HTTP request, from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.types import Receive

from tokenline.errors import RequestError
from tokenline.request import Request

if TYPE_CHECKING:
    from tokenline.client import Model
    from tokenline.generation import Generation
    from tokenline.row import Event


class Rows:
    """Submits requests and hands on their events as they come; `cancel` is always safe and ends what still runs."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._generations: list[Generation] = []
        self._events: asyncio.Queue[tuple[int, Event] | None] = asyncio.Queue()
        self.results: list[dict[str, Any] | None] = []

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
        try:
            for request in requests:
                self._generations.append(self._model.submit(request))
        except RequestError:
            self.cancel()
            raise

    def _listener(self, loop: asyncio.AbstractEventLoop, index: int) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            # The loop is closed when the server was stopped for good: then nobody listens any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

        return listen

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """(row, event) in the order of their making, until every row has its result, or the client has gone."""
        while None in self.results:
            arrived = await self._events.get()
            if arrived is None:
                return
            index, event = arrived
            if event.result is not None:
                self.results[index] = event.result
            yield index, event

    @contextlib.asynccontextmanager
    async def watched(self, receive: Receive) -> AsyncIterator[None]:
        """While inside: when the client disconnects, its rows are cancelled and `events` ends. After: no row runs."""
        watcher = asyncio.create_task(self._watch(receive))
        try:
            yield
        finally:
            watcher.cancel()
            self.cancel()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.cancel()
        self._events.put_nowait(None)

    def cancel(self) -> None:
        for generation in self._generations:
            generation.cancel()
