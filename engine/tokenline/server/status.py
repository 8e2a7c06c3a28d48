"""What the server says of itself: its models, its rows, its cache, its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tokenline.request import Sampling
from tokenline.server.catalogue import Catalogue
from tokenline.server.errors import json_response
from tokenline.server.metrics import MEDIA_TYPE, Metrics
from tokenline.server.settings import ServerSettings

if TYPE_CHECKING:
    from tokenline.client import Model

Told = Callable[[], Any]


def health(model: Model) -> dict[str, Any]:
    return {"status": "ok", "model": model.name, **model.stats(), "prompt_cache": model.cache_stats()}


def forget(model: Model) -> dict[str, Any]:
    model.reset_cache()
    return {"status": "ok"}


def props(model: Model, settings: ServerSettings) -> dict[str, Any]:
    """llama.cpp's names: what a request that says nothing is run with, the template, how many rows run at once."""
    defaults: Mapping[str, Any] = model.generation_defaults if settings.generation_config else {}
    sampling = {**msgspec.to_builtins(Sampling()), **defaults}
    template, tokenizer = model.chat_template, model.tokenizer
    bos = None if tokenizer.bos_token_id is None else tokenizer.token_text(tokenizer.bos_token_id)
    return {
        "default_generation_settings": {"n_ctx": model.context_length, "params": sampling},
        "total_slots": model.stats()["parallel"],
        "model_alias": model.name,
        "chat_template": "" if template is None else template.source,
        "bos_token": bos or "",
        "eos_token": "".join(map(tokenizer.token_text, sorted(tokenizer.eos_token_ids)[:1])),
        "modalities": {"vision": False, "audio": False},
        "build_info": f"tokenline {model.manifest['version']}",
        "manifest": model.manifest,
    }


def status_routes(catalogue: Catalogue, settings: ServerSettings) -> list[BaseRoute]:
    """Every call goes to the engine in a thread: it answers between two steps."""
    model, metrics = catalogue.model, Metrics(catalogue.model)

    async def one_model(request: HttpRequest) -> Response:
        return json_response(catalogue.card(request.path_params["name"]))

    async def exposed(_: HttpRequest) -> Response:
        return Response(await anyio.to_thread.run_sync(metrics.exposed), media_type=MEDIA_TYPE)

    told: dict[str, Told] = {
        "/health": partial(health, model),
        "/v1/models": lambda: {"object": "list", "data": catalogue.cards()},
        "/v1/cache/stats": model.cache_stats,
        "/props": partial(props, model, settings),
        "/slots": model.slots,
    }
    return [
        *(Route(path, _telling(tell)) for path, tell in told.items()),
        Route("/reset_prompt_cache", _telling(partial(forget, model)), methods=["POST"]),
        Route("/v1/models/{name:path}", one_model),
        Route("/metrics", exposed),
    ]


def _telling(tell: Told) -> Callable[[HttpRequest], Any]:
    async def respond(_: HttpRequest) -> Response:
        return json_response(await anyio.to_thread.run_sync(tell))

    return respond
