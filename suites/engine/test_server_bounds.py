"""What ends an answer that a client waits for: time, a full queue, a stop, a fault; and what keeps it waiting."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from asking import ASKED, HI, envelope_of, running, wait_until_idle
from serving import serving

from tokenline.client import Model
from tokenline.server.settings import ServerSettings


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


SIGNS = {
    "/v1/completions": ": keep-alive",
    "/v1/responses": ": keep-alive",
    "/v1/messages": 'event: ping\ndata: {"type":"ping"}',
}


@pytest.mark.parametrize("path", SIGNS)
def test_signs_of_life_while_a_row_waits(small: Model, path: str) -> None:
    """Until the row before it has ended there is no token; then there are tokens and no more signs."""
    bound = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body = {**ASKED[path], bound: 1, "stream": True}
    answered: list[str] = []
    with serving(small, ServerSettings(sse_ping_s=0.05)) as url:
        asker = threading.Thread(
            target=lambda: answered.append(httpx.post(url + path, json=body, timeout=60).text)
        )
        with running(url, small):
            asker.start()
            while len(small.slots()) < 2:
                time.sleep(0.005)
            time.sleep(0.4)
        asker.join()
    assert answered[0].split("\n\n").count(SIGNS[path]) >= 3


def test_a_full_queue_is_a_429_that_says_when(small_url: str, small: Model) -> None:
    with running(small_url, small), contextlib.ExitStack() as stack:
        waiting = threading.Thread(
            target=lambda: httpx.post(
                f"{small_url}/v1/completions", json={"prompt": "a", "max_tokens": 1}, timeout=60
            )
        )
        waiting.start()
        stack.callback(waiting.join)
        while len(small.slots()) < 2:
            time.sleep(0.005)
        for path in ASKED:
            response = httpx.post(small_url + path, json=ASKED[path])
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) >= 1
            assert envelope_of(path, response)["type"] == "rate_limit_error"
        with pytest.raises(openai.RateLimitError):
            openai.OpenAI(base_url=f"{small_url}/v1", api_key="x", max_retries=0).completions.create(
                model="small", prompt="a"
            )
        assert len(small.slots()) == 2


def test_a_priority_in_a_header(small_url: str, small: Model) -> None:
    with running(small_url, small, headers={"X-Priority": "-7"}):
        assert [slot["priority"] for slot in small.slots()] == [-7]
    for given in ("high", "1.5", "11", "", "٣"):
        headers: Any = {"X-Priority": given.encode()}
        answer = httpx.post(f"{small_url}/v1/completions", json={"prompt": "a"}, headers=headers)
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
    small_url: str, small: Model, monkeypatch: pytest.MonkeyPatch, path: str, stream: bool
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(small._engine._model, "hidden", broken)
    response = httpx.post(small_url + path, json={**ASKED[path], "stream": stream})
    if stream:
        assert response.status_code == 200
        told = json.loads(response.text.rstrip("\n").rpartition("data: ")[2])["error"]
    else:
        assert response.status_code == 500
        told = envelope_of(path, response)
    assert "no such kernel" in told["message"]
    assert told["type"] == ("api_error" if path == "/v1/messages" else "server_error")


@pytest.mark.parametrize("path", ASKED)
def test_an_event_arrives_while_the_next_are_made(small_url: str, small: Model, path: str) -> None:
    """Not one burst at the end: the row runs when the first text is read, and events spread over its life."""
    arrivals = []
    bound = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body = {**ASKED[path], bound: 300, "stream": True}
    with httpx.stream("POST", small_url + path, json=body, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: {") and ("text" in line or "content" in line):
                if not arrivals:
                    assert [slot["state"] for slot in small.slots()] != []
                arrivals.append(time.monotonic())
    assert len(arrivals) > 200
    assert arrivals[len(arrivals) // 2] - arrivals[0] > (arrivals[-1] - arrivals[0]) / 10
