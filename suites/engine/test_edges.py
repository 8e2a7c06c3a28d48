"""What a newcomer runs into first: each is told in one line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from gguf import GGUFWriter

CLOSED = "import os, sys; os.close(0); sys.stdin = None\n"
MAIN = "from tokenline.cli import main; main()"


def ran(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )


def test_a_negative_token_is_told_without_a_vocabulary() -> None:
    done = ran(MAIN, "generate", "-m", "x", "--token-ids=3,-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tokenline: token -1 is negative: use the checkpoint's token ids\n"


@pytest.mark.parametrize("n", [0, 129])
def test_a_number_of_choices_says_what_it_may_be(served_url: str, n: int) -> None:
    answer = httpx.post(f"{served_url}/v1/completions", json={"prompt": "x", "n": n})
    assert answer.json()["error"]["message"] == f"n {n} is outside 1 to 128: use 1 to 128"


@pytest.mark.parametrize("kept", [24, 60, 200, 900])
def test_a_truncated_gguf_says_its_size(tmp_path: Path, kept: int) -> None:
    """And nothing of the library that reads it."""
    writer = GGUFWriter(tmp_path / "whole.gguf", "llama")
    writer.add_array("tokenizer.ggml.tokens", [f"token {number}" for number in range(40)])
    writer.add_tensor("token_embd.weight", np.zeros((40, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "whole.gguf").read_bytes()[:kept])
    done = ran(MAIN, "models", "inspect", str(tmp_path / "cut.gguf"))
    assert done.returncode == 2
    what = (
        f"cut.gguf is truncated or corrupt: its {kept} bytes do not hold what its header says: fetch it again"
    )
    assert done.stderr == f"tokenline: {what}\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /v1/completions HTTP/1.1\r\nbad\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_the_envelope(served_url: str, sent: bytes) -> None:
    place = urlsplit(served_url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=20) as connection:
        connection.sendall(sent)
        answer = b""
        while block := connection.recv(65536):
            answer += block
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] == "the request is not valid HTTP/1.1: check the client"


def test_an_interrupt_while_the_commands_are_imported_is_quiet() -> None:
    finder = (
        "import sys\nclass Interrupts:\n    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
    )
    done = ran(finder + MAIN, "generate", "-m", "x", "-p", "x")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tokenline: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        (["chat", "-m", "x"], "leave stdin open"),
        (["generate", "-m", "x", "--prompt-file", "-"], "give a file"),
    ],
)
def test_a_closed_stdin_is_told(arguments: list[str], mend: str) -> None:
    done = ran(CLOSED + MAIN, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"stdin is closed: {mend}\n")
    assert done.stderr.count("\n") == 1
