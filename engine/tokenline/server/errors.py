"""Errors as OpenAI's API words them: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from tokenline.errors import RequestError

_log = logging.getLogger("tokenline")

INVALID, SERVER = "invalid_request_error", "server_error"


class NotFound(RequestError):
    """What the client names does not exist here."""


class TooLarge(RequestError):
    """A body over the limit."""


class Unavailable(RequestError):
    """The server is stopping and ended the row."""


_STATUS: dict[type[RequestError], tuple[int, str | None]] = {
    NotFound: (404, "model_not_found"),
    TooLarge: (413, None),
    Unavailable: (503, None),
}


def envelope(
    message: str, *, kind: str = INVALID, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def request_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    status, code = _STATUS.get(type(error), (400, None))
    kind = SERVER if status >= 500 else INVALID
    return json_response(envelope(str(error), kind=kind, param=error.param, code=code), status)


def http_error(request: HttpRequest, error: Exception) -> Response:
    """404 and 405 of the router."""
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path} is not served here"
    mend = "use /v1/completions, /v1/chat/completions, /v1/models or /health"
    if error.headers and "Allow" in error.headers:
        mend = f"use {error.headers['Allow']}"
    return json_response(envelope(f"{what}: {mend}"), error.status_code, error.headers)


def row_error(line: str) -> dict[str, Any]:
    """The engine failed on a row; the client can do nothing about it but try again."""
    return envelope(line, kind=SERVER)


def unexpected(_: HttpRequest, error: Exception) -> Response:
    """The boundary of the process: the client gets the envelope, the log gets the traceback."""
    _log.error("a request failed", exc_info=error)
    return json_response(envelope("the server failed on this request", kind=SERVER), 500)
