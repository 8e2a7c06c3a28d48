"""/openapi.json: the description of everything that is served, made from the structs that bodies are parsed into."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import msgspec

from tokenline.server import answers

TEMPLATE = "#/components/schemas/{name}"
# What each path that takes a body answers; the body is the endpoint's own.
_ANSWERS: dict[str, Any] = {
    "/v1/completions": answers.Completion,
    "/v1/chat/completions": answers.ChatCompletion,
    "/v1/messages": answers.AnsweredMessage,
    "/v1/messages/count_tokens": answers.TokenCount,
    "/v1/responses": answers.Response,
    "/v1/embeddings": answers.Embeddings,
    "/tokenize": answers.Tokens,
    "/detokenize": answers.Content,
    "/apply-template": answers.TemplatedPrompt,
}
# And what is asked for without one: (method, path).
_TOLD: dict[tuple[str, str], Any] = {
    ("get", "/health"): answers.Health,
    ("get", "/v1/models"): answers.ModelList,
    ("get", "/v1/models/{name}"): answers.ModelCard,
    ("get", "/v1/cache/stats"): answers.CacheStats,
    ("get", "/props"): answers.Props,
    ("get", "/slots"): list[answers.Slot],
    ("post", "/reset_prompt_cache"): answers.Done,
}
_REFUSALS = {
    "400": "A field is wrong; the message names it.",
    "401": "The server wants a key.",
    "404": "There is no such model.",
    "413": "The body is over the limit.",
    "429": "As many requests wait as may; Retry-After says for how long.",
    "503": "The server is stopping.",
    "504": "The answer took longer than the server allows.",
}


def description(bodies: Mapping[str, Any], streamed: frozenset[str]) -> dict[str, Any]:
    """OpenAPI 3.1 of the paths that take these bodies, some of which answer as events too, and of those without."""
    kinds = [
        *bodies.values(),
        *(_ANSWERS[path] for path in bodies),
        *_TOLD.values(),
        answers.Error,
        answers.AnthropicError,
    ]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=TEMPLATE)
    schema_of = {_key(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for path, body in bodies.items():
        asked = {"required": True, "content": {"application/json": {"schema": schema_of[_key(body)]}}}
        operation = _operation(path, schema_of[_key(_ANSWERS[path])], _refusals(path, schema_of, _REFUSALS))
        if path in streamed:
            events = {"schema": {"type": "string"}}
            operation["responses"]["200"]["content"]["text/event-stream"] = events
        paths[path] = {"post": {**operation, "requestBody": asked}}
    for (method, path), answer in _TOLD.items():
        refused = {code: what for code, what in _REFUSALS.items() if code in ("401", "404")}
        paths[path] = {method: _operation(path, schema_of[_key(answer)], _refusals(path, schema_of, refused))}
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    paths["/v1/models/{name}"]["get"]["parameters"] = [name]
    text = {
        "description": "Prometheus's text format.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    paths["/metrics"] = {"get": {"operationId": "metrics", "responses": {"200": text}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tokenline", "version": importlib.metadata.version("paritygate")},
        "paths": paths,
        "components": {"schemas": components},
    }


def _key(kind: Any) -> str:
    return repr(kind)


def _operation(path: str, answer: Any, refusals: dict[str, Any]) -> dict[str, Any]:
    done = {"description": "Done.", "content": {"application/json": {"schema": answer}}}
    return {"operationId": path.strip("/").replace("/", "-"), "responses": {"200": done, **refusals}}


def _refusals(path: str, schema_of: Mapping[str, Any], refused: Mapping[str, str]) -> dict[str, Any]:
    kind = answers.AnthropicError if path.startswith("/v1/messages") else answers.Error
    content = {"application/json": {"schema": schema_of[_key(kind)]}}
    return {code: {"description": what, "content": content} for code, what in refused.items()}
