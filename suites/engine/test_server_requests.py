"""What a client may get wrong: always OpenAI's envelope, the field by name, never a 500."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import serving

from tokenline.client import Model
from tokenline.server.settings import ServerSettings

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}


@pytest.fixture(scope="module")
def http(served_url: str) -> httpx.Client:
    return httpx.Client(base_url=served_url, timeout=60)


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert body["error"]["type"] == "invalid_request_error"
    return body["error"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [259]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": "a" * 2048}, "prompt"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "1"}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"penalty_window": -2}, "penalty_window"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"259": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 64}, "seed"),
        ({"seed": 1 << 300}, "seed"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 2, "prompt": ["a"] * 100}, "n"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"loop_detection": {"max_period": 0}}, "loop_detection"),
        ({"loop_detection": 3}, "loop_detection"),
        ({"echo": 1}, "echo"),
        ({"samplers": "alphabetical"}, "samplers"),
        ({"samplers": ["top_k", "tail_free"]}, "samplers"),
        ({"samplers": ["temperature"], "top_k": 4}, "top_k"),
        ({"mirostat": 3, "temperature": 1}, "mirostat"),
        ({"mirostat": 1}, "mirostat"),
        ({"dry_breakers": ["a", ""]}, "dry_breakers"),
        ({"dry_breakers": "a"}, "dry_breakers"),
        ({"banned_tokens": [300]}, "banned_tokens"),
        ({"allowed_tokens": []}, "allowed_tokens"),
        ({"logprobs_mode": "cooked"}, "logprobs_mode"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"max_time_ms": 0}, "max_time_ms"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"temprature": 1}, "temprature"),
        ({"messages": []}, "messages"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_completion_fields(http: httpx.Client, fields: dict[str, Any], param: str, stream: bool) -> None:
    body = {"prompt": "hi", "max_tokens": 1, **({"stream": True} if stream else {}), **fields}
    if stream and param == "stream_options":
        body["stream_options"] = []
    assert error_of(http.post(COMPLETIONS, content=json.dumps(body)), 400)["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "root", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [{"role": "user", "content": "x", "y": 1}]}, "messages[0].y"),
        ({"messages": [{"role": "user", "content": "a" * 2048}]}, "messages"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"max_completion_tokens": 2}, "max_completion_tokens"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"prompt": "x"}, "prompt"),
        ({"tools": []}, "tools"),
        ({"json_schema": {"type": "objct"}, "response_format": {"type": "text"}}, "json_schema"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "objct"}},
                }
            },
            "response_format",
        ),
        ({"json_object": True, "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_chat_fields(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    assert error_of(http.post(CHAT, json={**HI, **fields}), 400)["param"] == param


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"prompt": "\\ud800"}', b'{"prompt": NaN}',
        b'{"temperature": 1e999, "prompt": "x"}', b"[" * 100_000, b'{"prompt":' + b"[" * 100_000,
        b'{"messages": [{"role": "user", "content": "\\ud83d"}], "prompt": "\\ud83d"}',
    ],
)  # fmt: skip
def test_bodies_that_are_no_request(http: httpx.Client, path: str, content: bytes) -> None:
    error_of(http.post(path, content=content), 400)


@pytest.mark.parametrize("depth", [100, 400, 700, 900, 980])
@pytest.mark.parametrize("field", ["chat_template_kwargs", "messages", "json_schema", "tools"])
def test_deep_nesting(http: httpx.Client, field: str, depth: int) -> None:
    """Deep enough for one stage and too deep for the next, wherever that is."""
    nest = '{"a":' * depth + "1" + "}" * depth
    function = f'{{"type":"function","function":{{"name":"f","arguments":{nest},"parameters":{nest}}}}}'
    given = {
        "messages": f'[{{"role":"assistant","tool_calls":[{function}]}}]',
        "json_schema": f'{{"properties":{nest}}}',
        "tools": f"[{function}]",
    }
    content = json.dumps({**HI, field: "HERE"}).replace('"HERE"', given.get(field, nest))
    response = http.post(CHAT, content=content)
    if response.status_code != 200:
        error_of(response, 400)
    assert depth > 100 or response.status_code == 200 or field in ("json_schema", "tools")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/v1/audio/speech", 404),
        ("POST", "/v1/completions/", 404),
        ("GET", COMPLETIONS, 405),
        ("DELETE", CHAT, 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/models/other", 404),
    ],
)
def test_routes_that_are_not_there(http: httpx.Client, method: str, path: str, status: int) -> None:
    response = http.request(method, path)
    error_of(response, status)
    if status == 405:
        assert response.headers["allow"]


def test_another_model_is_not_found(http: httpx.Client) -> None:
    error = error_of(http.post(CHAT, json={**HI, "model": "gpt-4o"}), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_a_body_over_the_limit(tiny_torch: Model) -> None:
    with serving(tiny_torch, ServerSettings(max_body_bytes=1 << 10)) as url:
        assert httpx.post(url + CHAT, json=HI).status_code == 200
        error_of(httpx.post(url + COMPLETIONS, json={"prompt": "a" * (1 << 10)}), 413)


@pytest.mark.parametrize(
    "field", ["temperature", "top_p", "seed", "stop", "logit_bias", "n", "stream", "user"]
)
def test_null_is_the_default(http: httpx.Client, field: str) -> None:
    plain = http.post(CHAT, json=HI).json()["choices"]
    assert http.post(CHAT, json={**HI, field: None}).json()["choices"] == plain


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    "prompt", "messages", "n", "stop", "seed", "temperature", "top_p", "top_k", "min_p", "logit_bias", "logprobs",
    "top_logprobs", "loop_detection", "chat_template_kwargs", "penalty_window", "stream_options", "user", "other",
]  # fmt: skip


@given(
    path=st.sampled_from([COMPLETIONS, CHAT]),
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_a_client_sends_is_a_500(http: httpx.Client, path: str, fields: dict[str, Any]) -> None:
    body = {"max_tokens": 1, **({"prompt": "x"} if path == COMPLETIONS else HI), **fields}
    response = http.post(path, content=json.dumps(body).encode("utf-8", "surrogatepass"))
    if response.status_code != 200:
        error_of(response, 400)


def test_health(http: httpx.Client, tiny_torch: Model) -> None:
    health = http.get("/health").json()
    assert health["status"] == "ok"
    assert health["model"] == tiny_torch.name
