"""POST with a JSON body, answered at once by one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from tokenline.server.endpoint import read_body
from tokenline.server.errors import json_response
from tokenline.server.parsing import parse


@dataclass(frozen=True)
class Call:
    """`answer` runs in a thread, as it may encode a long text, or wait for the engine."""

    body: type[Any]
    answer: Callable[[Any], dict[str, Any]]
    max_body_bytes: int

    async def respond(self, request: HttpRequest) -> Response:
        body = parse(await read_body(request, self.max_body_bytes), self.body)
        return json_response(await anyio.to_thread.run_sync(self.answer, body))
