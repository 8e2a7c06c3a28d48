"""The routes, over one model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from tokenline.errors import RequestError
from tokenline.server.bodies import ChatBody, CompletionBody
from tokenline.server.call import Call
from tokenline.server.catalogue import Catalogue
from tokenline.server.chat import ChatReply
from tokenline.server.completions import CompletionReply
from tokenline.server.embeddings import EmbeddingBody, embeddings
from tokenline.server.endpoint import Api, Endpoint, Live
from tokenline.server.errors import http_error, request_error, unexpected
from tokenline.server.keys import KeyGuard
from tokenline.server.messages.bodies import CountBody, MessagesBody
from tokenline.server.messages.count import count_tokens
from tokenline.server.messages.reply import MessageReply
from tokenline.server.messages.requests import messages_requests, messages_spelled
from tokenline.server.openapi import description
from tokenline.server.origins import OriginGuard
from tokenline.server.protocol import chat_requests, completion_requests, spelled
from tokenline.server.responses.bodies import ResponsesBody
from tokenline.server.responses.reply import ResponseReply
from tokenline.server.responses.requests import responses_requests, responses_spelled
from tokenline.server.settings import ServerSettings
from tokenline.server.status import status_routes
from tokenline.server.text import (
    DetokenizeBody,
    TokenizeBody,
    apply_template,
    detokenize,
    tokenize,
)

if TYPE_CHECKING:
    from tokenline.client import Model

# Every way to ask for an answer, by its path.
APIS = {
    "/v1/completions": Api(CompletionBody, completion_requests, CompletionReply, spelled),
    "/v1/chat/completions": Api(ChatBody, chat_requests, ChatReply, spelled),
    "/v1/messages": Api(MessagesBody, messages_requests, MessageReply, messages_spelled),
    "/v1/responses": Api(ResponsesBody, responses_requests, ResponseReply, responses_spelled),
}
# What is answered at once, by its path: the body, and the function of the catalogue and the body.
CALLS: dict[str, tuple[type[Any], Callable[[Catalogue, Any], dict[str, Any]]]] = {
    "/v1/messages/count_tokens": (CountBody, count_tokens),
    "/v1/embeddings": (EmbeddingBody, embeddings),
    "/tokenize": (TokenizeBody, tokenize),
    "/detokenize": (DetokenizeBody, detokenize),
    "/apply-template": (ChatBody, apply_template),
}


def described_api() -> dict[str, Any]:
    """The description of all that is served."""
    bodies = {path: api.body for path, api in APIS.items()} | {
        path: body for path, (body, _) in CALLS.items()
    }
    return description(bodies, frozenset(APIS))


def _middleware(settings: ServerSettings) -> list[Middleware]:
    """Outside first: a browser asks whether it may ask before it sends a key."""
    guards = [Middleware(OriginGuard, origins=settings.cors_origins)]
    if settings.cors_origins:
        guards.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["Retry-After"],
            )
        )
    if settings.api_keys:
        guards.append(Middleware(KeyGuard, keys=settings.api_keys))
    return guards


def application(model: Model, settings: ServerSettings, live: Live) -> Starlette:
    """The application; the answers under way are in `live`."""
    catalogue = Catalogue(model, settings.aliases)
    answering = [
        Route(path, Endpoint(catalogue, settings, live, api), methods=["POST"]) for path, api in APIS.items()
    ]
    answered = [
        Route(path, Call(body, partial(answer, catalogue), settings.max_body_bytes).respond, methods=["POST"])
        for path, (body, answer) in CALLS.items()
    ]
    described = msgspec.json.encode(described_api())

    async def openapi(_: HttpRequest) -> Response:
        return Response(described, media_type="application/json")

    app = Starlette(
        routes=[*answering, *answered, *status_routes(catalogue, settings), Route("/openapi.json", openapi)],
        middleware=_middleware(settings),
        exception_handlers={RequestError: request_error, HTTPException: http_error, Exception: unexpected},
    )
    # A path with a slash too many is a 404 in the envelope, not a redirect that drops the body.
    app.router.redirect_slashes = False
    return app
