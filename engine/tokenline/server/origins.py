"""Which web pages may ask: those of this server, and of the origins that it was told."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenline.server.errors import ForeignPage, error_response


class OriginGuard:
    """An ASGI middleware: a request that a browser sends for a page of another origin is a 403. Without it any page
    could have a server of this machine compute, or forget, though it could not read the answer. Programs send no
    `Origin` (RFC 6454, section 7).
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app, self._origins = app, frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and "*" not in self._origins:
            headers = HttpRequest(scope).headers
            origin = headers.get("origin")
            if origin is not None and not self._may_ask(origin, headers.get("host")):
                what = f"pages of {origin[:100]} may not ask this server"
                error = ForeignPage(what, "start it with --cors-origin for that origin")
                await error_response(scope["path"], error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _may_ask(self, origin: str, host: str | None) -> bool:
        return origin in self._origins or (host is not None and urlsplit(origin).netloc == host)
