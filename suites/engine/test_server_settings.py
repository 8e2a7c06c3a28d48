"""How the server treats its clients: keys, origins, adapters by name, a checkpoint's own sampling, the options."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
import transformers
from published import faults
from serving import serving

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
from peft_adapters import save_adapter

from tokenline.cli.app import exit_code
from tokenline.cli.serve_options import ServeOptions
from tokenline.client import Model
from tokenline.errors import RequestError
from tokenline.server.settings import ServerSettings

GENERATION = {
    "do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.25, "max_new_tokens": 6,
    # None that could be drawn, so that an answer lasts.
    "eos_token_id": 300, "transformers_version": "5.0.0",
}  # fmt: skip
HI = [{"role": "user", "content": "hi"}]
# The four ways to ask, each with a body that runs for long.
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True},
    "/v1/chat/completions": {"messages": HI, "max_tokens": 1900, "ignore_eos": True},
    "/v1/responses": {"model": "small", "input": "hi", "max_output_tokens": 1900},
    "/v1/messages": {"model": "small", "messages": HI, "max_tokens": 1900},
}


@pytest.fixture(scope="module")
def small(
    tiny_checkpoint: Path,
    tiny_oracle: transformers.LlamaForCausalLM,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Model]:
    """One row at a time and one that waits; an adapter; sampling of its own; no end of sequence."""
    directory = tmp_path_factory.mktemp("settings")
    copy = directory / "small"
    shutil.copytree(tiny_checkpoint, copy)
    (copy / "generation_config.json").write_text(json.dumps(GENERATION))
    adapter = save_adapter(tiny_oracle, directory / "polite", 1, r=4, target_modules=["q_proj", "v_proj"])
    with Model(
        str(copy), backend="torch", dtype="float32", threads=1, parallel=1, max_queue=1, adapters={"polite": adapter}
    ) as model:  # fmt: skip
        yield model


@pytest.fixture(scope="module")
def url(small: Model) -> Iterator[str]:
    with serving(small) as url:
        yield url


@contextlib.contextmanager
def running(url: str, model: Model, **fields: Any) -> Iterator[Iterator[str]]:
    """A stream under way; after it no row is left."""
    body = {**ASKED["/v1/completions"], "stream": True, **fields}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as response:
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        yield lines
    wait_until_idle(model)


def wait_until_idle(model: Model) -> None:
    end = time.monotonic() + 5
    while model.slots():
        assert time.monotonic() < end, "a row is still alive"
        time.sleep(0.01)


def envelope_of(path: str, response: httpx.Response) -> dict[str, Any]:
    """The error, which must be in the words of the API."""
    if path == "/v1/messages":
        assert faults("anthropic", "ErrorResponse", response.json()) == []
    else:
        assert faults("openai_chat", "ErrorResponse", response.json()) == []
    return response.json()["error"]


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


def test_pages_of_an_origin_that_was_named_may_ask(locked: str, url: str) -> None:
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    for origin, allowed in (
        ("https://here.example", "https://here.example"),
        ("https://there.example", None),
    ):
        answer = httpx.options(f"{locked}/v1/completions", headers={"Origin": origin, **ask})
        assert answer.headers.get("access-control-allow-origin") == allowed
    answer = httpx.get(f"{url}/v1/models", headers={"Origin": "https://here.example"})
    assert "access-control-allow-origin" not in answer.headers


# Bounds


@pytest.fixture(scope="module")
def hurried(small: Model) -> Iterator[str]:
    with serving(small, ServerSettings(request_timeout_s=0.25, sse_ping_s=0.02)) as url:
        yield url


@pytest.mark.parametrize("path", ASKED)
def test_an_answer_that_takes_too_long_says_so(hurried: str, small: Model, path: str) -> None:
    response = httpx.post(hurried + path, json=ASKED[path], timeout=60)
    assert response.status_code == 504
    assert "longer than 0.25 s" in envelope_of(path, response)["message"]
    wait_until_idle(small)


@pytest.mark.parametrize("path", ASKED)
def test_a_stream_that_takes_too_long_ends_with_an_error(hurried: str, small: Model, path: str) -> None:
    response = httpx.post(hurried + path, json={**ASKED[path], "stream": True}, timeout=60)
    assert response.status_code == 200
    *sent, last, rest = response.text.split("\n\n")
    assert rest == ""
    assert len(sent) > 10
    name, _, data = last.rpartition("data: ")
    error = json.loads(data)
    assert name == ("event: error\n" if path in ("/v1/messages", "/v1/responses") else "")
    assert "longer than 0.25 s" in error["error"]["message"]
    wait_until_idle(small)


def test_clients_raise_what_ended_a_stream(hurried: str) -> None:
    ours = openai.OpenAI(base_url=f"{hurried}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.APIError, match="longer than"):
        list(ours.chat.completions.create(model="small", messages=HI, stream=True))  # type: ignore[call-overload]
    with pytest.raises(openai.APIError, match="longer than"):
        list(ours.responses.create(model="small", input="hi", stream=True))
    theirs = anthropic.Anthropic(base_url=hurried, api_key="none", max_retries=0)
    with pytest.raises(anthropic.APIStatusError, match="longer than"):
        list(theirs.messages.create(model="small", max_tokens=1900, messages=HI, stream=True))  # type: ignore[call-overload]


def test_signs_of_life_while_a_row_waits(small: Model) -> None:
    """Until the row before it has ended there is no token; then there are tokens and no more signs."""
    signs = {
        "/v1/completions": ": keep-alive",
        "/v1/responses": ": keep-alive",
        "/v1/messages": 'event: ping\ndata: {"type":"ping"}',
    }
    with serving(small, ServerSettings(sse_ping_s=0.05)) as url:
        for path, sign in signs.items():
            fields = {"max_output_tokens": 1} if path == "/v1/responses" else {"max_tokens": 1}
            with running(url, small):
                answered: list[httpx.Response] = []
                asker = threading.Thread(
                    target=lambda path=path, fields=fields: answered.append(  # type: ignore[misc]
                        httpx.post(url + path, json={**ASKED[path], **fields, "stream": True}, timeout=60)
                    )
                )
                asker.start()
                while len(small.slots()) < 2:
                    time.sleep(0.005)
                time.sleep(0.4)
            asker.join()
            events = answered[0].text.split("\n\n")
            assert events.count(sign) >= 3
            client = httpx.post(url + path, json={**ASKED[path], **fields, "stream": True}).text
            assert client.count(sign) <= 1


def test_a_full_queue_is_a_429_that_says_when(url: str, small: Model) -> None:
    with running(url, small), contextlib.ExitStack() as stack:
        waiting = threading.Thread(
            target=lambda: httpx.post(
                f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 1}, timeout=60
            )
        )
        waiting.start()
        stack.callback(waiting.join)
        while len(small.slots()) < 2:
            time.sleep(0.005)
        for path in ASKED:
            response = httpx.post(url + path, json=ASKED[path])
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) >= 1
            assert envelope_of(path, response)["type"] == "rate_limit_error"
        with pytest.raises(openai.RateLimitError):
            openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0).completions.create(
                model="small", prompt="a"
            )
        assert len(small.slots()) == 2


def test_a_priority_in_a_header(url: str, small: Model) -> None:
    with (
        httpx.stream(
            "POST", f"{url}/v1/completions", json={**ASKED["/v1/completions"], "stream": True}, headers={"X-Priority": "-7"}
        ) as response,
    ):  # fmt: skip
        lines = response.iter_lines()
        next(lines)
        assert [slot["priority"] for slot in small.slots()] == [-7]
    for given in ("high", "1.5", "11", "", "٣"):
        answer = httpx.post(
            f"{url}/v1/completions", json={"prompt": "a"}, headers={"X-Priority": given.encode()}
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] in ("X-Priority", "priority")


def test_a_stop_ends_what_takes_longer_than_the_drain(small: Model) -> None:
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serving(small, ServerSettings(drain_timeout_s=0.2)))
        with running(url, small) as lines:
            stop = threading.Thread(target=stack.close)
            began = time.monotonic()
            stop.start()
            rest = list(lines)
            took = time.monotonic() - began
        stop.join()
    assert len(rest) > 10  # it was let go on for a while
    assert "the server is stopping" in json.loads(rest[-1].removeprefix("data: "))["error"]["message"]
    assert took < 1


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("stream", [False, True])
def test_a_row_that_fails_is_an_error_in_the_words_of_the_api(
    url: str, small: Model, monkeypatch: pytest.MonkeyPatch, path: str, stream: bool
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(small._engine._model, "hidden", broken)
    response = httpx.post(url + path, json={**ASKED[path], "stream": stream})
    if stream:
        assert response.status_code == 200
        told = json.loads(response.text.rstrip("\n").rpartition("data: ")[2])["error"]
    else:
        assert response.status_code == 500
        told = envelope_of(path, response)
    assert "no such kernel" in told["message"]
    assert told["type"] == ("api_error" if path == "/v1/messages" else "server_error")


# Names, and defaults


def test_an_adapter_is_a_model_of_its_own(url: str, small: Model) -> None:
    cards = httpx.get(f"{url}/v1/models").json()["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [("small", None), ("polite", "small")]
    expected = {
        name: small.generate("Once", max_tokens=20, adapter=name)["text"] for name in (None, "polite")
    }
    assert expected[None] != expected["polite"]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    for name, adapter in (("small", None), ("polite", "polite")):
        answer = client.completions.create(model=name, prompt="Once", max_tokens=20)
        assert (answer.model, answer.choices[0].text) == (name, expected[adapter])
    messages = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0).messages
    said = messages.create(model="polite", max_tokens=9, messages=HI)  # type: ignore[arg-type]
    assert said.model == "polite"
    assert said.content[0].text == small.generate(messages=HI, max_tokens=9, adapter="polite")["text"]  # type: ignore[union-attr]
    vectors = [
        client.embeddings.create(model=name, input="Once").data[0].embedding for name in ("small", "polite")
    ]
    assert vectors[0] != vectors[1]
    with pytest.raises(openai.NotFoundError, match="use small, polite"):
        client.completions.create(model="rude", prompt="Once")


def details(url: str, **fields: Any) -> dict[str, Any]:
    body = {"prompt": "Once", "return_details": True, **fields}
    response = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["details"]


def test_a_checkpoints_own_sampling_counts_where_it_is_asked_for(url: str, small: Model) -> None:
    told = details(url, max_tokens=2)["manifest"]
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


def test_timings_add_up_to_the_prompt(url: str, small: Model) -> None:
    """llama.cpp's fields; a prompt that was found is not computed."""
    small.reset_cache()
    for found in (0, 15):
        answer = httpx.post(
            f"{url}/v1/completions", json={"prompt": "Once upon a time", "max_tokens": 9}
        ).json()
        timings = answer["timings"]
        assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (found, 16 - found, 9)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == found
        assert timings["prompt_ms"] > 0
        assert timings["predicted_per_token_ms"] == pytest.approx(timings["predicted_ms"] / 9)
        assert timings["prompt_per_second"] == pytest.approx(1e3 * (16 - found) / timings["prompt_ms"])
    body = {"messages": HI, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
    chunks = httpx.post(f"{url}/v1/chat/completions", json=body).text.split("\n\n")
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
