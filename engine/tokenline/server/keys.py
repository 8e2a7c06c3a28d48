"""Who may ask: keys that open the server."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenline.server.errors import Unauthorized, error_response

# Whoever watches whether the server lives has no key.
OPEN_PATHS = frozenset({"/health"})


class KeyGuard:
    """An ASGI middleware: a request without one of the keys is a 401. Keys come as `Authorization: Bearer`, which
    OpenAI's clients send, or as `x-api-key`, which Anthropic's do.

    Digests are compared, all of them, in constant time: neither how much of a key was right nor how long it is shows.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            given = _given(HttpRequest(scope))
            if not self._opens(given):
                what = "no API key was sent" if given is None else "the API key is wrong"
                error = Unauthorized(what, "send one as Authorization: Bearer KEY, or as x-api-key")
                response = error_response(scope["path"], error, {"WWW-Authenticate": "Bearer"})
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _opens(self, given: str | None) -> bool:
        # Headers come as Latin-1, whatever a client meant: these are the bytes that it sent.
        found = _digest((given or "").encode("latin-1"))
        return sum(hmac.compare_digest(found, digest) for digest in self._digests) > 0


def _given(request: HttpRequest) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    return request.headers.get("x-api-key")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
