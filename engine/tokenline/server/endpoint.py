"""POST with a JSON body: parse, submit, answer whole or as events."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenline.errors import RequestError
from tokenline.request import Request
from tokenline.server.catalogue import Catalogue
from tokenline.server.errors import TooLarge, json_response
from tokenline.server.parsing import parse
from tokenline.server.reply import Reply
from tokenline.server.rows import Rows
from tokenline.server.settings import ServerSettings
from tokenline.server.sse import send_events


class GenerationBody(Protocol):
    """What every body that asks for an answer has."""

    model: Any
    stream: bool | None


@dataclass(frozen=True)
class Api:
    """One way to ask for an answer: its body, the requests that the body makes (with the defaults that stand below
    it), its reply, and an error of a request under the name that the client gave its field."""

    body: type[Any]
    requests: Callable[[Any, Mapping[str, Any]], list[Request]]
    reply: Callable[..., Reply]
    spelled: Callable[[RequestError, Any], RequestError]


@dataclass(frozen=True)
class Live:
    """The answers under way, which a server that stops must be able to end."""

    rows: set[Rows] = field(default_factory=set)

    def stop(self, error: RequestError) -> None:
        for rows in self.rows:
            rows.stop(error)

    @contextlib.contextmanager
    def holding(self, rows: Rows) -> Iterator[None]:
        """While inside, `stop` ends these rows too."""
        self.rows.add(rows)
        try:
            yield
        finally:
            self.rows.discard(rows)


@dataclass(frozen=True)
class Endpoint:
    """An ASGI application, as it watches `receive` for a client that leaves while its rows run."""

    catalogue: Catalogue
    settings: ServerSettings
    live: Live
    api: Api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):
            request = HttpRequest(scope, receive)
            body = parse(await read_body(request, self.settings.max_body_bytes), self.api.body)
            name, adapter = self.catalogue.answering(body.model)
            model = self.catalogue.model
            defaults = model.generation_defaults if self.settings.generation_config else {}
            shared: dict[str, Any] = {"adapter": adapter}
            if (priority := _priority(request)) is not None:
                shared["priority"] = priority
            rows = Rows(model)
            with self.live.holding(rows):
                async with rows.watched(receive, self.settings.request_timeout_s):
                    try:
                        made = self.api.requests(body, defaults)
                        requests = [msgspec.structs.replace(each, **shared) for each in made]
                        await rows.submit(requests)
                    except RequestError as error:
                        raise self.api.spelled(error, body) from None
                    reply = self.api.reply(model=model, name=name, body=body, requests=requests)
                    if body.stream:
                        await send_events(send, reply, rows, self.settings.sse_ping_s)
                    else:
                        response = await _whole(reply, rows)
                        await response(scope, receive, send)


async def _whole(reply: Reply, rows: Rows) -> Response:
    async for arrived in rows.events():
        if arrived is not None:
            deque(reply.chunks(*arrived), maxlen=0)
    if rows.finished is None:
        raise ClientDisconnect
    return json_response(reply.whole(rows.finished))


def _priority(request: HttpRequest) -> int | None:
    """Of `X-Priority`, which any client can be made to send; its range is checked where every request is."""
    given = request.headers.get("x-priority")
    if given is None:
        return None
    if not re.fullmatch(r"[+-]?\d{1,4}", given, re.ASCII):
        raise RequestError(
            f"X-Priority {given[:40]!r} is no whole number", "send one, such as 1", param="X-Priority"
        )
    return int(given)


async def read_body(request: HttpRequest, limit: int) -> bytes:
    """RequestError over the limit, before all of it is read."""
    data = bytearray()
    async for block in request.stream():
        data += block
        if len(data) > limit:
            raise TooLarge(f"the body is over {limit} bytes", "send less")
    return bytes(data)
