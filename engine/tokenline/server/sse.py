"""Server-sent events: one event per token, sent when the token is there."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Send

from tokenline.errors import RequestError
from tokenline.server.reply import Reply
from tokenline.server.rows import Rows

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Proxies that buffer would turn the stream into one burst.
    (b"x-accel-buffering", b"no"),
]


async def send_events(send: Send, reply: Reply, rows: Rows, ping_s: float | None) -> None:
    """The answer as it is made; ends early, and silently, when the client has gone, and with an error where one ended
    its rows. A sign of life is sent after `ping_s` seconds without a token.
    """
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    try:
        for chunk in reply.opening(rows.prompt_lengths):
            await _event(send, reply, chunk)
        async for arrived in rows.events(ping_s):
            if arrived is None:
                await _send(send, reply.ping)
                continue
            index, event = arrived
            for chunk in reply.chunks(index, event):
                await _event(send, reply, chunk)
        if rows.finished is not None:
            for chunk in reply.ending(rows.finished):
                await _event(send, reply, chunk)
            await _send(send, reply.last)
    except RequestError as error:
        await _event(send, reply, reply.failure(error))
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _event(send: Send, reply: Reply, value: dict[str, Any]) -> None:
    name = f"event: {value['type']}\n".encode() if reply.named else b""
    await _send(send, name + b"data: " + msgspec.json.encode(value) + b"\n\n")


async def _send(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})
