"""What the server says of itself: its models, its rows, its cache."""

from __future__ import annotations

import anyio.to_thread
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tokenline.server.catalogue import Catalogue
from tokenline.server.errors import json_response


def status_routes(catalogue: Catalogue) -> list[BaseRoute]:
    """Every call goes to the engine in a thread: it answers between two steps."""
    model = catalogue.model

    async def health(_: HttpRequest) -> Response:
        stats = await anyio.to_thread.run_sync(model.stats)
        cache = await anyio.to_thread.run_sync(model.cache_stats)
        return json_response({"status": "ok", "model": model.name, **stats, "prompt_cache": cache})

    async def reset_prompt_cache(_: HttpRequest) -> Response:
        await anyio.to_thread.run_sync(model.reset_cache)
        return json_response({"status": "ok"})

    async def cache_stats(_: HttpRequest) -> Response:
        return json_response(await anyio.to_thread.run_sync(model.cache_stats))

    async def models(_: HttpRequest) -> Response:
        return json_response({"object": "list", "data": catalogue.cards()})

    async def one_model(request: HttpRequest) -> Response:
        return json_response(catalogue.card(request.path_params["name"]))

    return [
        Route("/health", health),
        Route("/reset_prompt_cache", reset_prompt_cache, methods=["POST"]),
        Route("/v1/cache/stats", cache_stats),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", one_model),
    ]
