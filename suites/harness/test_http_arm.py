"""The HTTP arm against small servers that behave, burst, break off, refuse and hang."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_server import SERVER

from paritygate.arms.base import Arm, ArmError
from paritygate.arms.registry import make_arm
from paritygate.case import Case, Message

PROGRAM = (
    SERVER
    + """\
mode, port = sys.argv[1], int(sys.argv[2])


class Handler(Quiet):
    def do_POST(self):
        body = self.asked()
        if mode == "refuse":
            self.begin(400)
            self.wfile.write(b"no such field: top_q")
            return
        if mode == "hang":
            time.sleep(60)
        self.begin(200)
        chat = self.path == "/v1/chat/completions"
        if not body.get("stream"):
            if mode == "garbage":
                self.wfile.write(b"<html>busy</html>")
                return
            text = {"message": {"content": "Hi 🎉"}} if chat else {"text": "Hi 🎉"}
            usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
            answer = {"choices": [text | {"finish_reason": "stop"}], "usage": usage}
            self.wfile.write(json.dumps(answer).encode())
            return
        for piece in ("Hi", " ", "🎉"):
            choice = {"delta": {"content": piece}} if chat else {"text": piece}
            self.event({"choices": [choice]})
            time.sleep(0.1)
        if mode == "break":
            return
        self.event({"choices": [{"finish_reason": "stop"}]}, last=True)


if mode == "die":
    sys.exit("no weights")
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
)
PLAIN = Case(name="plain", kind="plain", max_tokens=3, prompt="Hello")
CHAT = Case(name="chat", kind="chat", max_tokens=3, messages=(Message("user", "Hello"),))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(PROGRAM)
    return path


def arm_of(program: Path, mode: str, **more: object) -> Arm:
    command = [sys.executable, str(program), mode, "{port}"]
    return make_arm("s", "http", {"command": command, "details": False, "timeout_s": 3.0} | more, "toy")


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def answering(request: pytest.FixtureRequest, program: Path) -> Iterator[Arm]:
    arm = arm_of(program, "answer", streamed=request.param)
    arm.open()
    yield arm
    arm.close()


@pytest.mark.parametrize("case", [PLAIN, CHAT], ids=["plain", "chat"])
def test_an_answer_is_read(answering: Arm, case: Case) -> None:
    stream = answering.generate(case)
    assert (stream.text, stream.finish_reason, stream.token_ids) == ("Hi 🎉", "stop", None)
    if answering.capabilities.streamed:
        arrivals = stream.arrivals_ns or ()
        assert len(arrivals) == 3
        assert arrivals[-1] - arrivals[0] >= 150_000_000


def test_a_server_that_forgets_is_another_server(answering: Arm) -> None:
    first, second = answering.repeat(PLAIN, 2)
    assert first.text_bytes == second.text_bytes


@pytest.mark.parametrize(
    ("mode", "streamed", "why"),
    [
        ("refuse", False, "HTTP 400; it printed: no such field: top_q"),
        ("hang", False, "the server hung for 3 s"),
        ("garbage", False, "not an answer.*<html>busy</html>"),
        ("break", True, "broke off before"),
    ],
)
def test_a_bad_answer_is_an_arm_error(program: Path, mode: str, streamed: bool, why: str) -> None:
    arm = arm_of(program, mode, streamed=streamed)
    arm.open()
    try:
        with pytest.raises(ArmError, match=why):
            arm.generate(PLAIN)
    finally:
        arm.close()


def test_a_server_that_dies_shows_what_it_printed(program: Path) -> None:
    with pytest.raises(ArmError, match="exit status 1 before it was ready; it printed: no weights"):
        arm_of(program, "die").open()


def test_a_server_that_is_never_ready(tmp_path: Path) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("import time\ntime.sleep(60)\n")
    command = [sys.executable, str(silent), "{port}"]
    arm = make_arm("s", "http", {"command": command, "timeout_s": 1.0}, "toy")
    with pytest.raises(ArmError, match="the server hung: /health did not answer within 1 s"):
        arm.open()


def test_a_foreign_server_is_asked_by_url(answering: Arm) -> None:
    url = answering._server.url  # type: ignore[attr-defined]
    by_url = make_arm("u", "http", {"url": url, "details": False}, "toy")
    by_url.open()
    assert by_url.generate(PLAIN).text == "Hi 🎉"
    with pytest.raises(ArmError, match="cannot be made to forget"):
        by_url.reset()
