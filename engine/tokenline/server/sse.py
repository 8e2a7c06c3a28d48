"""Server-sent events: one event per token, sent when the token is there."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Send

from tokenline.server.reply import Reply
from tokenline.server.rows import Rows

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Proxies that buffer would turn the stream into one burst.
    (b"x-accel-buffering", b"no"),
]


async def send_events(send: Send, reply: Reply, rows: Rows) -> None:
    """The answer as it is made; ends early, and silently, when the client has gone."""
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    for chunk in reply.opening():
        await _event(send, chunk)
    async for index, event in rows.events():
        for chunk in reply.chunks(index, event):
            await _event(send, chunk)
    finished = [result for result in rows.results if result is not None]
    if len(finished) == len(rows.results):
        if reply.body.include_usage:
            await _event(send, reply.usage_chunk(finished))
        await _send(send, b"data: [DONE]\n\n")
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _event(send: Send, value: Any) -> None:
    await _send(send, b"data: " + msgspec.json.encode(value) + b"\n\n")


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
