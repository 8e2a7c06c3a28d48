"""Errors in the words of the API that was asked: OpenAI's envelope, or Anthropic's under /v1/messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from tokenline.errors import RequestError

_log = logging.getLogger("tokenline")

Envelope = Callable[[RequestError], dict[str, Any]]


class Refusal(RequestError):
    """A refusal that is not the body's fault: its HTTP status, and OpenAI's code for it."""

    status: ClassVar[int]
    code: ClassVar[str | None] = None


class NotFound(Refusal):
    """What the client names does not exist here."""

    status, code = 404, "model_not_found"


class NoRoute(Refusal):
    """A path that is not served."""

    status = 404


class NoMethod(Refusal):
    """A path that is served by another method."""

    status = 405


class Unauthorized(Refusal):
    """No key, or a wrong one."""

    status, code = 401, "invalid_api_key"


class ForeignPage(Refusal):
    """A web page of an origin that may not ask."""

    status, code = 403, "origin_not_allowed"


class TooLarge(Refusal):
    """A body over the limit."""

    status = 413


class Busy(Refusal):
    """As many requests wait as may; trying again after `retry_after_s` seconds is reasonable."""

    status, code = 429, "rate_limit_exceeded"

    def __init__(self, what: str, mend: str = "", *, retry_after_s: int) -> None:
        super().__init__(what, mend)
        self.retry_after_s = retry_after_s


class Unavailable(Refusal):
    """The server is stopping and ended the row."""

    status = 503


class TimedOut(Refusal):
    """The answer took longer than the server allows."""

    status, code = 504, "timeout"


class Failed(Refusal):
    """The engine, or the server, failed on this request; the client can do nothing about it but try again."""

    status = 500


def status_of(error: RequestError) -> int:
    return error.status if isinstance(error, Refusal) else 400


_OPENAI_KINDS = {
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "server_error",
}


def openai_envelope(error: RequestError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`."""
    kind = _OPENAI_KINDS.get(status_of(error), "invalid_request_error")
    code = error.code if isinstance(error, Refusal) else None
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": code}}


_ANTHROPIC_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_envelope(error: RequestError) -> dict[str, Any]:
    """`{"type": "error", "error": {type, message}}`; a field has no place of its own: the message begins with it."""
    status, message = status_of(error), str(error)
    kind = _ANTHROPIC_KINDS.get(status, "invalid_request_error")
    if error.param is not None and not message.startswith(error.param):
        message = f"{error.param}: {message}"
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}


def envelope_for(path: str) -> Envelope:
    """In which words an error is told to whoever asked for this path."""
    return anthropic_envelope if path.startswith("/v1/messages") else openai_envelope


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def error_response(path: str, error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    return json_response(envelope_for(path)(error), status_of(error), headers)


def request_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    wait = {"Retry-After": str(error.retry_after_s)} if isinstance(error, Busy) else None
    return error_response(request.url.path, error, wait)


def http_error(request: HttpRequest, error: Exception) -> Response:
    """404 and 405 of the router."""
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path} is not served here"
    if error.headers and "Allow" in error.headers:
        told: RequestError = NoMethod(what, f"use {error.headers['Allow']}")
    else:
        told = NoRoute(what, "GET /openapi.json lists what is")
    return error_response(request.url.path, told, error.headers)


def unexpected(request: HttpRequest, error: Exception) -> Response:
    """The boundary of the process: the client gets the envelope, the log gets the traceback."""
    _log.error("a request failed", exc_info=error)
    return error_response(request.url.path, Failed("the server failed on this request"))
