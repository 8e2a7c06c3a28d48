"""The routes, over one model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tokenline.errors import RequestError
from tokenline.request import Request
from tokenline.server.bodies import ChatBody, CompletionBody
from tokenline.server.chat import ChatReply
from tokenline.server.completions import CompletionReply
from tokenline.server.errors import (
    NotFound,
    TooLarge,
    Unavailable,
    http_error,
    json_response,
    request_error,
    row_error,
    unexpected,
)
from tokenline.server.protocol import chat_requests, completion_requests, parse, spelled
from tokenline.server.reply import Reply
from tokenline.server.rows import Rows
from tokenline.server.sse import send_events

if TYPE_CHECKING:
    from tokenline.client import Model

MAX_BODY_BYTES = 32 << 20


@dataclass(frozen=True)
class Endpoint:
    """POST with a JSON body: parse, submit, answer whole or as events. An ASGI application, as it watches `receive`
    for a client that leaves while its rows run.
    """

    model: Model
    names: frozenset[str]
    body: type[Any]
    requests: Callable[[Any], list[Request]]
    reply: type[Reply]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):
            body = parse(await _read(HttpRequest(scope, receive)), self.body)
            _check_name(body.model, self.names)
            rows = Rows(self.model)
            async with rows.watched(receive):
                try:
                    await rows.submit(self.requests(body))
                except RequestError as error:
                    raise spelled(error, body) from None
                reply = self.reply(model=self.model, body=body)
                if body.stream:
                    await send_events(send, reply, rows)
                else:
                    response = await _whole(reply, rows)
                    await response(scope, receive, send)


async def _whole(reply: Reply, rows: Rows) -> Response:
    async for _ in rows.events():
        pass
    results = [result for result in rows.results if result is not None]
    for result in results:
        if result["finish_reason"] == "error":
            return json_response(row_error(result["error"]), 500)
    if len(results) < len(rows.results) or any(result["finish_reason"] == "cancelled" for result in results):
        raise Unavailable("the answer was cancelled", "ask again when the server runs")
    return json_response(reply.whole(results))


async def _read(request: HttpRequest) -> bytes:
    data = bytearray()
    async for block in request.stream():
        data += block
        if len(data) > MAX_BODY_BYTES:
            raise TooLarge(f"the body is over {MAX_BODY_BYTES >> 20} MiB", "send less")
    return bytes(data)


def _check_name(name: str | None, names: frozenset[str]) -> None:
    if name is not None and name not in names:
        raise NotFound(f"there is no model {name!r} here", f"use {sorted(names)[0]}", param="model")


def application(model: Model, aliases: frozenset[str] = frozenset()) -> Starlette:
    """The application; `aliases` are other names that clients may call the model by."""
    names = aliases | {model.name}
    started = int(time.time())
    card = {"id": model.name, "object": "model", "created": started, "owned_by": "tokenline"}

    async def health(_: HttpRequest) -> Response:
        # In a thread: the engine answers between two steps.
        stats = await anyio.to_thread.run_sync(model.stats)
        cache = await anyio.to_thread.run_sync(model.cache_stats)
        return json_response({"status": "ok", "model": model.name, **stats, "prompt_cache": cache})

    async def reset_prompt_cache(_: HttpRequest) -> Response:
        await anyio.to_thread.run_sync(model.reset_cache)
        return json_response({"status": "ok"})

    async def models(_: HttpRequest) -> Response:
        return json_response({"object": "list", "data": [card]})

    async def one_model(request: HttpRequest) -> Response:
        _check_name(request.path_params["name"], names)
        return json_response(card)

    completions = Endpoint(model, names, CompletionBody, completion_requests, CompletionReply)
    chat = Endpoint(model, names, ChatBody, chat_requests, ChatReply)
    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/reset_prompt_cache", reset_prompt_cache, methods=["POST"]),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", one_model),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
        ],
        exception_handlers={RequestError: request_error, HTTPException: http_error, Exception: unexpected},
    )
    # A path with a slash too many is a 404 in the envelope, not a redirect that drops the body.
    app.router.redirect_slashes = False
    return app
