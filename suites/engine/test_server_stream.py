"""Time over HTTP: tokens arrive as they are made, and who leaves takes their rows along."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tokenline.client import Model

LONG: dict[str, Any] = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True}
TOKENLINE = [sys.executable, "-c", "from tokenline.cli import main; main()"]


def alive(model: Model) -> int:
    stats = model.stats()
    return stats["running"] + stats["queued"]


def wait_until_idle(model: Model, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while alive(model):
        assert time.monotonic() < end, "a row is still alive"
        time.sleep(0.01)


def lines(response: httpx.Response) -> Iterator[str]:
    return (line for line in response.iter_lines() if line)


def test_a_token_arrives_while_the_next_are_made(served_url: str, tiny_torch: Model) -> None:
    """Not one burst at the end: the row is alive when the first token is read, and events spread over its life."""
    arrivals = []
    body = {**LONG, "max_tokens": 200, "stream": True}
    with httpx.stream("POST", f"{served_url}/v1/completions", json=body, timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for _ in lines(response):
            if not arrivals:
                assert alive(tiny_torch) == 1
            arrivals.append(time.monotonic())
    assert len(arrivals) >= 200
    whole = arrivals[-1] - arrivals[0]
    assert arrivals[len(arrivals) // 2] - arrivals[0] > whole / 10


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3, 9])
def test_a_client_that_leaves_frees_its_rows(
    served_url: str, tiny_torch: Model, stream: bool, n: int
) -> None:
    host, port = served_url.removeprefix("http://").split(":")
    body = httpx.Request("POST", served_url, json={**LONG, "stream": stream, "n": n}).content
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(3):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head + body)
            end = time.monotonic() + 5
            while alive(tiny_torch) < n:
                assert time.monotonic() < end, "the rows never started"
                time.sleep(0.005)
        wait_until_idle(tiny_torch)


def test_a_client_that_leaves_in_the_middle_of_its_body(served_url: str, tiny_torch: Model) -> None:
    host, port = served_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert httpx.get(f"{served_url}/health").status_code == 200
    assert alive(tiny_torch) == 0


def test_others_go_on_when_one_leaves(served_url: str, tiny_torch: Model) -> None:
    expected = tiny_torch.generate("Once", max_tokens=150, ignore_eos=True)["text"]
    answers: list[str] = []

    def ask() -> None:
        body = {**LONG, "max_tokens": 150}
        response = httpx.post(f"{served_url}/v1/completions", json=body, timeout=60)
        answers.append(response.json()["choices"][0]["text"])

    asker = threading.Thread(target=ask)
    asker.start()
    with httpx.stream(
        "POST", f"{served_url}/v1/completions", json={**LONG, "stream": True}, timeout=60
    ) as response:
        next(lines(response))
    asker.join()
    assert answers == [expected]
    wait_until_idle(tiny_torch)


@pytest.fixture
def process(tiny_checkpoint: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        *TOKENLINE,
        "serve",
        "-m",
        str(tiny_checkpoint),
        "--backend",
        "torch",
        "--port",
        "0",
        "--threads",
        "1",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert server.stderr.readline() == f"tokenline: loading {tiny_checkpoint}\n"
        line = server.stderr.readline()
        found = re.fullmatch(
            r"tokenline: listening on (http://127\.0\.0\.1:\d+) \((.*), torch, float32\)\n", line
        )
        assert found is not None, line
        assert found[2] == str(tiny_checkpoint)
        yield server, found[1]
        server.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_stop_lets_answers_finish(
    process: tuple[subprocess.Popen[str], str], number: signal.Signals, code: int
) -> None:
    server, url = process
    body = {**LONG, "max_tokens": 300, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as response:
        answer = lines(response)
        next(answer)
        os.kill(server.pid, number)
        rest = list(answer)
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in rest[-2]
    out, err = server.communicate(timeout=30)
    assert server.returncode == code, err
    assert (out, err) == ("", f"tokenline: {'interrupted' if code else 'stopped'}\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_stop_ends_answers_and_tells_them(
    process: tuple[subprocess.Popen[str], str], number: signal.Signals
) -> None:
    server, url = process
    body = {**LONG, "max_tokens": 1900, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as response:
        answer = lines(response)
        next(answer)
        os.kill(server.pid, number)
        time.sleep(0.3)
        os.kill(server.pid, number)
        rest = list(answer)
    _, err = server.communicate(timeout=30)
    assert "data: [DONE]" not in rest
    assert "the server is stopping and ended the answer" in rest[-1]
    assert err == f"tokenline: {'interrupted' if number == signal.SIGINT else 'stopped'}\n"


def test_a_port_in_use_is_one_line_before_anything_is_loaded(
    process: tuple[subprocess.Popen[str], str],
) -> None:
    port = process[1].rpartition(":")[2]
    done = subprocess.run(
        [*TOKENLINE, "serve", "-m", "no-such-model", "--port", port],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert (
        done.stderr == f"tokenline: port {port} on 127.0.0.1 is in use: choose another: --port N, 0 for any\n"
    )
