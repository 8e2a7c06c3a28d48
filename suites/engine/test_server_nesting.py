"""Bodies nested deep enough for one stage and too deep for the next, wherever that is: a 400, never a 500."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from published import faults
from speaking import Speaking

ASKED = {"model": "spoken", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
CALLED = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "HERE"}]},
    {"role": "user", "content": "hi"},
]
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "input of a tool": ("/v1/messages", {**ASKED, "messages": CALLED}),
    "schema of a tool": ("/v1/messages", {**ASKED, "tools": [{"name": "f", "input_schema": {"a": "HERE"}}]}),
    "schema of the answer": (
        "/v1/messages",
        {**ASKED, "output_config": {"format": {"type": "json_schema", "schema": "HERE"}}},
    ),
    "tools that are counted": (
        "/v1/messages/count_tokens",
        {"model": "spoken", "messages": CALLED, "tools": [{"name": "f", "input_schema": {"a": "HERE"}}]},
    ),
    "an item": ("/v1/responses", {"model": "spoken", "input": [{"role": "user", "content": "HERE"}]}),
    "an item of another kind": ("/v1/responses", {"model": "spoken", "input": ["HERE"]}),
    "a schema of responses": (
        "/v1/responses",
        {"model": "spoken", "input": "hi", "max_output_tokens": 1,
         "tools": [{"type": "function", "name": "f", "parameters": {"a": "HERE"}}]},
    ),
    "variables of a template": ("/apply-template", {**ASKED, "chat_template_kwargs": "HERE"}),
    "vectors": ("/v1/embeddings", {"input": ["HERE"]}),
}  # fmt: skip


@pytest.mark.parametrize("depth", [100, 400, 700, 900, 980, 100_000])
@pytest.mark.parametrize("name", BODIES)
def test_deep_nesting(speaking: Speaking, name: str, depth: int) -> None:
    path, body = BODIES[name]
    nest = '{"a":' * depth + "1" + "}" * depth
    url = str(speaking.client.base_url).removesuffix("/v1/")
    content = json.dumps(body).replace('"HERE"', nest)
    response = httpx.post(url + path, content=content.encode(), timeout=60)
    if response.status_code != 200:
        assert response.status_code == 400
        described = ("anthropic", "ErrorResponse") if "messages" in path else ("openai_chat", "ErrorResponse")
        assert faults(*described, response.json()) == []
