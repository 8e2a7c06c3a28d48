"""How the server treats its clients: keys, origins, adapters by name, a checkpoint's own sampling, the options."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from asking import ASKED, GENERATION, HI, envelope_of
from serving import serving

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))

from tokenline.cli.app import exit_code
from tokenline.cli.serve_options import ServeOptions
from tokenline.client import Model
from tokenline.errors import RequestError
from tokenline.server.settings import ServerSettings

# Keys and origins


@pytest.fixture(scope="module")
def locked(small: Model) -> Iterator[str]:
    with serving(
        small, ServerSettings(api_keys=("first", "sécond"), cors_origins=("https://here.example",))
    ) as url:
        yield url


@pytest.mark.parametrize("path", [*ASKED, "/v1/models", "/metrics", "/tokenize", "/nothing"])
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer firs"}, {"Authorization": "Basic first"},
                                     {"x-api-key": "first "}, {"Authorization": "Bearer"}])  # fmt: skip
def test_no_key_no_answer(locked: str, path: str, headers: dict[str, str]) -> None:
    if headers.get("x-api-key"):
        headers = {"x-api-key": "firs"}
    response = httpx.post(locked + path, json={}, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    error = envelope_of(path, response)
    if path == "/v1/messages":
        assert error["type"] == "authentication_error"
    else:
        assert error["code"] == "invalid_api_key"


def test_either_key_opens_and_health_is_open(locked: str, small: Model) -> None:
    for key in ("first", "sécond".encode()):
        headers: Any = {"x-api-key": key}
        assert httpx.get(f"{locked}/v1/models", headers=headers).status_code == 200
    assert httpx.get(f"{locked}/health").status_code == 200
    ours = openai.OpenAI(base_url=f"{locked}/v1", api_key="first", max_retries=0)
    assert [model.id for model in ours.models.list()] == ["small", "polite"]
    theirs = anthropic.Anthropic(base_url=locked, api_key="first", max_retries=0)
    assert theirs.messages.create(model="small", max_tokens=2, messages=HI).usage.output_tokens == 2  # type: ignore[arg-type]
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{locked}/v1", api_key="x", max_retries=0).models.list()
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=locked, api_key="x", max_retries=0).messages.create(
            model="small",
            max_tokens=2,
            messages=HI,  # type: ignore[arg-type]
        )


def test_pages_of_an_origin_that_was_named_may_ask(locked: str, small_url: str) -> None:
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    for origin, allowed in (
        ("https://here.example", "https://here.example"),
        ("https://there.example", None),
    ):
        answer = httpx.options(f"{locked}/v1/completions", headers={"Origin": origin, **ask})
        assert answer.headers.get("access-control-allow-origin") == allowed
    answer = httpx.get(f"{small_url}/v1/models", headers={"Origin": "https://here.example"})
    assert "access-control-allow-origin" not in answer.headers


# Names, and defaults


def test_an_adapter_is_a_model_of_its_own(small_url: str, small: Model) -> None:
    cards = httpx.get(f"{small_url}/v1/models").json()["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [("small", None), ("polite", "small")]
    expected = {
        name: small.generate("Once", max_tokens=20, adapter=name)["text"] for name in (None, "polite")
    }
    assert expected[None] != expected["polite"]
    client = openai.OpenAI(base_url=f"{small_url}/v1", api_key="none", max_retries=0)
    for name, adapter in (("small", None), ("polite", "polite")):
        answer = client.completions.create(model=name, prompt="Once", max_tokens=20)
        assert (answer.model, answer.choices[0].text) == (name, expected[adapter])
    messages = anthropic.Anthropic(base_url=small_url, api_key="none", max_retries=0).messages
    said = messages.create(model="polite", max_tokens=9, messages=HI)  # type: ignore[arg-type]
    assert said.model == "polite"
    assert said.content[0].text == small.generate(messages=HI, max_tokens=9, adapter="polite")["text"]  # type: ignore[union-attr]
    vectors = [
        client.embeddings.create(model=name, input="Once").data[0].embedding for name in ("small", "polite")
    ]
    assert vectors[0] != vectors[1]
    with pytest.raises(openai.NotFoundError, match="use small, polite"):
        client.completions.create(model="rude", prompt="Once")


def details(small_url: str, **fields: Any) -> dict[str, Any]:
    body = {"prompt": "Once", "return_details": True, **fields}
    response = httpx.post(f"{small_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["details"]


def test_a_checkpoints_own_sampling_counts_where_it_is_asked_for(small_url: str, small: Model) -> None:
    told = details(small_url, max_tokens=2)["manifest"]
    assert told["generation_config"] == GENERATION
    assert (told["sampling"]["temperature"], told["sampling"]["repetition_penalty"]) == (0, 1)
    with serving(small, ServerSettings(generation_config=True)) as asked:
        manifest = details(asked)["manifest"]
        own = {name: GENERATION[name] for name in ("temperature", "top_k", "top_p", "repetition_penalty")}
        assert {name: manifest["sampling"][name] for name in own} == own
        assert (manifest["sampling"]["penalty_window"], manifest["max_tokens"]) == (-1, 6)
        manifest = details(asked, temperature=0, top_k=0, max_tokens=2)["manifest"]
        assert manifest["sampling"] | {"temperature": 0, "top_k": 0, "top_p": 0.9} == manifest["sampling"]
        assert manifest["max_tokens"] == 2
        assert httpx.get(f"{asked}/props").json()["default_generation_settings"]["params"]["top_k"] == 5
        messages = {"model": "small", "input": "hi"}
        assert httpx.post(f"{asked}/v1/responses", json=messages).json()["top_p"] == 0.9


def test_timings_add_up_to_the_prompt(small_url: str, small: Model) -> None:
    """llama.cpp's fields; a prompt that was found is not computed."""
    small.reset_cache()
    for found in (0, 15):
        answer = httpx.post(
            f"{small_url}/v1/completions", json={"prompt": "Once upon a time", "max_tokens": 9}
        ).json()
        timings = answer["timings"]
        assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (found, 16 - found, 9)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == found
        assert timings["prompt_ms"] > 0
        assert timings["predicted_per_token_ms"] == pytest.approx(timings["predicted_ms"] / 9)
        assert timings["prompt_per_second"] == pytest.approx(1e3 * (16 - found) / timings["prompt_ms"])
    body = {"messages": HI, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
    chunks = httpx.post(f"{small_url}/v1/chat/completions", json=body).text.split("\n\n")
    told = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks if chunk.startswith("data: {")]
    [last, usage] = [chunk for chunk in told if "timings" in chunk]
    assert last["choices"][0]["finish_reason"]
    assert last["timings"] == usage["timings"]
    assert usage["timings"]["cache_n"] + usage["timings"]["prompt_n"] == usage["usage"]["prompt_tokens"]


# The command's options


def test_options_are_settings(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# ours\none\n\n two \n")
    options = ServeOptions(
        api_key=["zero"], api_key_file=keys, cors_origin=["*"], request_timeout=3, drain_timeout=4, sse_ping=0,
        max_body_mib=2, generation_config=True,
    )  # fmt: skip
    assert options.settings(frozenset({"alias"})) == ServerSettings(
        aliases=frozenset({"alias"}), api_keys=("zero", "one", "two"), cors_origins=("*",), max_body_bytes=2 << 20,
        request_timeout_s=3, drain_timeout_s=4, sse_ping_s=None, generation_config=True,
    )  # fmt: skip
    assert ServeOptions().settings(frozenset()) == ServerSettings()


@pytest.mark.parametrize(
    "arguments",
    [["--request-timeout", "0"], ["--drain-timeout", "-1"], ["--sse-ping", "nan"], ["--api-key", " "],
     ["--api-key-file", "/no/such/file"]],
)  # fmt: skip
def test_what_no_server_could_keep_to_is_refused_before_anything_is_loaded(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["serve", "-m", "no-such-model", *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("tokenline: ")
    assert arguments[0] in line or arguments[1] in line


def test_an_empty_file_of_keys_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none yet\n")
    with pytest.raises(RequestError, match="holds no key"):
        ServeOptions(api_key_file=tmp_path / "keys").settings(frozenset())
