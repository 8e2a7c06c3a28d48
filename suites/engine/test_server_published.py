"""Answers of completions and chat are what OpenAI publishes of them, chunk by chunk."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from published import faults
from speaking import ASK, SAID, TOOLS, Speaking

HI = [{"role": "user", "content": "hi"}]
SCHEMAS = {
    "/v1/completions": ("CreateCompletionResponse", "CreateCompletionResponse"),
    "/v1/chat/completions": ("CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"),
}
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "hi", "max_tokens": 5}),
    ("/v1/completions", {"prompt": ["hi", "ho"], "max_tokens": 5, "n": 2, "logprobs": 3, "temperature": 1}),
    ("/v1/completions", {"prompt": "hi", "max_tokens": 5, "return_details": True}),
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 5}),
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 5, "n": 2, "logprobs": True, "top_logprobs": 3}),
    ("/v1/chat/completions", {"messages": HI, "json_schema": {"const": 1}, "return_details": True}),
]


def events_of(url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    text = httpx.post(url, json={**body, "stream": True, "stream_options": {"include_usage": True}}).text
    *events, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_an_answer_is_as_published(served_url: str, path: str, body: dict[str, Any]) -> None:
    whole = httpx.post(served_url + path, json=body).json()
    assert faults("openai_chat", SCHEMAS[path][0], whole) == []
    events = events_of(served_url + path, body)
    assert len(events) > 2
    for event in events:
        if event.get("usage") is None:
            del event["usage"]  # null until the last: clients take it, the description has no word for it
        for choice in event["choices"]:
            if path == "/v1/completions" and choice["finish_reason"] is None:
                choice["finish_reason"] = "stop"  # the description is of a whole answer; null is what is sent
        assert faults("openai_chat", SCHEMAS[path][1], event) == [], event


@pytest.mark.parametrize("name", SAID)
def test_calls_and_thoughts_are_as_published(speaking: Speaking, name: str) -> None:
    speaking.will_say(SAID[name][0], ASK, tools=TOOLS)
    body = {"messages": ASK, "tools": TOOLS}
    url = f"{speaking.client.base_url}chat/completions"
    whole = httpx.post(url, json=body).json()
    assert faults("openai_chat", "CreateChatCompletionResponse", whole) == []
    for event in events_of(url, body):
        if event.get("usage") is None:
            del event["usage"]
        assert faults("openai_chat", "CreateChatCompletionStreamResponse", event) == [], event
