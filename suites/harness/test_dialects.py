"""What a server is sent and what is read from it, by dialect; a field that cannot be said is refused by name."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from paritygate.arms.base import Arm, ArmError
from paritygate.arms.dialects import DIALECTS
from paritygate.arms.registry import make_arm
from paritygate.arms.vocabulary_piece import text_of_piece
from paritygate.case import Case, Message, Sampler
from paritygate.stream import TopToken

PLAIN = Case(name="plain", max_tokens=3, prompt="Hello", logprobs=2)
CHAT = Case(name="chat", max_tokens=3, messages=(Message("user", "Hello"),), logprobs=2)
USAGE = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}


class Server:
    """Answers every POST with what it is told, and remembers what it was sent."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *words: object) -> None: ...

            def do_POST(self) -> None:
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                outer.headers.append({k.lower(): v for k, v in self.headers.items()} | {"path": self.path})
                self.send_response(200)
                self.end_headers()
                if outer.bodies[-1].get("stream"):
                    for event in outer.events:
                        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                    self.wfile.write(b"data: [DONE]\n\n")
                else:
                    self.wfile.write(json.dumps(outer.answer).encode())

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def arm(server: Server) -> Callable[..., Arm]:
    def make(dialect: str, **more: object) -> Arm:
        made = make_arm("s", "http", {"url": server.url, "dialect": dialect} | more, "toy")
        made.open()
        return made

    return make


def whole(text: str, reason: str = "length", **more: object) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": reason, **more}], "usage": USAGE}


def test_the_older_logprobs_are_read_in_their_own_shape(server: Server, arm: Callable[..., Arm]) -> None:
    server.answer = whole(
        " Paris",
        logprobs={
            "tokens": [" Paris"],
            "token_logprobs": [-0.25],
            "top_logprobs": [{" London": -4.0, " Paris": -0.25}],
        },
    )
    stream = arm("openai").generate(PLAIN)
    assert server.bodies[0]["logprobs"] == 2
    (position,) = stream.positions or ()
    assert position.top == (TopToken(None, " Paris", -0.25), TopToken(None, " London", -4.0))
    assert position.gap == 3.75
    assert (stream.token_ids, stream.finish_cause) == (None, None)


def test_chat_logprobs_are_asked_for_and_read(server: Server, arm: Callable[..., Arm]) -> None:
    entry = {"token": "Hi", "logprob": -0.5, "top_logprobs": [{"token": "Hi", "logprob": -0.5}]}
    server.answer = {
        "choices": [
            {"message": {"content": "Hi"}, "finish_reason": "stop", "logprobs": {"content": [entry]}}
        ],
        "usage": USAGE,
    }
    stream = arm("openai").generate(CHAT)
    assert (server.bodies[0]["logprobs"], server.bodies[0]["top_logprobs"]) == (True, 2)
    assert [position.token for position in stream.positions or ()] == ["Hi"]


@pytest.mark.parametrize(
    ("dialect", "field", "sent"),
    [
        ("tokenline", {"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}),
        ("vllm", {"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}),
        ("llama.cpp", {"repetition_penalty": 1.2}, {"repeat_penalty": 1.2}),
        ("llama.cpp", {"penalty_window": 3}, {"repeat_last_n": 3}),
        (
            "mlx-lm",
            {"penalty_window": 3},
            {"repetition_context_size": 3, "presence_context_size": 3, "frequency_context_size": 3},
        ),
        ("openai", {"presence_penalty": 0.5}, {"presence_penalty": 0.5}),
    ],
)
def test_a_field_goes_by_the_servers_name(
    server: Server,
    arm: Callable[..., Arm],
    dialect: str,
    field: dict[str, Any],
    sent: dict[str, Any],
) -> None:
    server.answer = whole("x")
    case = Case(name="c", max_tokens=3, prompt="Hello", sampler=Sampler(**field))
    arm(dialect, details=False).generate(case)
    body = server.bodies[0]
    assert body.items() >= sent.items()
    known = {"max_tokens", "prompt", "temperature", "logprobs", "top_logprobs", "return_token_ids"}
    assert set(body) - known == set(sent)


@pytest.mark.parametrize(
    ("dialect", "field"),
    [
        ("openai", {"top_k": 5}),
        ("openai", {"min_p": 0.1}),
        ("openai", {"repetition_penalty": 1.1}),
        ("vllm", {"penalty_window": 4}),
        ("llama.cpp", {"penalty_window": -1}),
        ("mlx-lm", {"penalty_window": -1}),
    ],
)
def test_a_field_that_cannot_be_said_is_refused_by_name(
    server: Server, arm: Callable[..., Arm], dialect: str, field: dict[str, Any]
) -> None:
    case = Case(name="c", max_tokens=3, prompt="Hello", sampler=Sampler(**field))
    with pytest.raises(ArmError, match=rf"case c: .*{dialect}.*`{next(iter(field))}`"):
        arm(dialect).generate(case)
    assert server.bodies == []


def test_mlx_lm_reads_no_token_ids(server: Server, arm: Callable[..., Arm]) -> None:
    case = Case(name="c", max_tokens=3, prompt_token_ids=(1, 2))
    with pytest.raises(ArmError, match="takes no token ids"):
        arm("mlx-lm").generate(case)


def test_the_ids_of_a_greedy_answer_are_the_likeliest_alternatives(
    server: Server, arm: Callable[..., Arm]
) -> None:
    """mlx-lm names the first alternative, whichever it is; the end-of-sequence token is counted there, not here."""
    other, drawn, end = (
        {"id": i, "token": t, "logprob": p}
        for i, t, p in ((5, "b", -3.0), (4, "Ġa", -0.1), (2, "</s>", -0.2))
    )
    server.answer = whole(
        "a",
        "stop",
        logprobs={
            "content": [{**other, "top_logprobs": [other, drawn]}, {**end, "top_logprobs": [end, other]}]
        },
    )
    stream = arm("mlx-lm").generate(PLAIN)
    assert (stream.token_ids, stream.finish_cause) == ((4,), "Eos")
    assert stream.usage is not None
    assert stream.usage.completion_tokens == 2
    assert stream.counters == {"reported_completion_tokens": 3}
    first = (stream.positions or ())[0]
    assert (first.token_id, first.token, first.logprob) == (4, " a", -0.1)


def test_what_a_stop_string_leaves_open_is_not_told(server: Server, arm: Callable[..., Arm]) -> None:
    server.answer = whole("a", "stop", logprobs={"content": [{"id": 4, "logprob": -0.1}]})
    case = Case(name="c", max_tokens=3, prompt="Hello", stop=("x",))
    stream = arm("mlx-lm").generate(case)
    assert (stream.token_ids, stream.finish_cause) == (None, None)


def test_vllm_tells_ids_and_why_it_stopped(server: Server, arm: Callable[..., Arm]) -> None:
    server.answer = whole("a", "stop", token_ids=[4, 9], prompt_token_ids=[1, 2], stop_reason="\n")
    case = Case(name="c", max_tokens=3, prompt="Hello", stop=("\n",))
    stream = arm("vllm").generate(case)
    assert server.bodies[0]["return_token_ids"] is True
    assert (stream.token_ids, stream.prompt_token_ids) == ((4, 9), (1, 2))
    assert stream.finish_cause == "StopSequence"


def test_events_are_gathered_with_ids_logprobs_and_usage(server: Server, arm: Callable[..., Arm]) -> None:
    def event(text: str, token: int) -> dict[str, Any]:
        logprobs = {"tokens": [text], "token_logprobs": [-0.5], "top_logprobs": [{text: -0.5}]}
        return {"choices": [{"text": text, "token_ids": [token], "logprobs": logprobs}]}

    server.events = [
        event("Hé", 4),
        event("y", 5),
        {"choices": [{"text": "", "finish_reason": "length"}]},
        {"choices": [], "usage": USAGE},
    ]
    stream = arm("vllm", streamed=True).generate(PLAIN)
    assert server.bodies[0]["stream_options"] == {"include_usage": True}
    assert (stream.text, stream.token_ids, stream.chunk_ends) == ("Héy", (4, 5), (3, 4))
    assert [position.token_id for position in stream.positions or ()] == [4, 5]
    assert stream.usage is not None
    assert stream.usage.total_tokens == 7


def test_extra_fields_and_the_key_are_sent(
    server: Server, arm: Callable[..., Arm], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_KEY", "abc")
    server.answer = whole("x")
    arm("openai", extra={"cache_salt": "a"}, api_key_env="TOY_KEY", served_model="m").generate(PLAIN)
    assert server.bodies[0]["cache_salt"] == "a"
    assert server.bodies[0]["model"] == "m"
    assert server.headers[0]["authorization"] == "Bearer abc"


def test_extra_may_not_change_what_the_case_says(server: Server, arm: Callable[..., Arm]) -> None:
    with pytest.raises(ArmError, match="`extra` sets temperature, which the case sets already"):
        arm("openai", extra={"temperature": 1}).generate(PLAIN)


def test_a_key_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOY_KEY", raising=False)
    with pytest.raises(ArmError, match="variable TOY_KEY, which api_key_env names, is not set"):
        make_arm("s", "http", {"url": "http://127.0.0.1:1", "api_key_env": "TOY_KEY"}, "toy").open()


def test_a_url_may_end_as_openai_spells_it(server: Server) -> None:
    server.answer = whole("x")
    arm = make_arm("s", "http", {"url": server.url + "/v1/"}, "toy")
    assert arm.generate(PLAIN).text == "x"
    assert server.headers[0]["path"] == "/v1/completions"


def test_a_url_and_a_command_exclude_each_other() -> None:
    with pytest.raises(ArmError, match="url and command exclude each other"):
        make_arm("s", "http", {"url": "http://x", "command": ["y"]}, "toy")


def test_only_an_own_server_is_taken_for_tokenline() -> None:
    own, foreign = (make_arm("s", "http", options, "toy") for options in ({}, {"url": "http://x"}))
    assert (own.capabilities.token_ids, foreign.capabilities.token_ids) == (True, False)
    assert (own.capabilities.forgets, foreign.capabilities.forgets) == (True, False)


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        ("ĠParis", " Paris"),
        ("Ċ", "\n"),
        ("Ã©", "é"),
        ("Ã", "\ufffd"),
        ("▁Paris", " Paris"),
        ("</s>", "</s>"),
        ("水", "水"),
    ],
)
def test_a_vocabularys_spelling_is_turned_into_text(piece: str, text: str) -> None:
    assert text_of_piece(piece) == text


def test_every_dialect_can_be_greedy() -> None:
    assert all("temperature" in dialect.fields for dialect in DIALECTS.values())
