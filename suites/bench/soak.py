"""A thousand mixed requests against a server: long and short, streamed and not, cut off, malformed, over budget.

`python suites/bench/soak.py [REQUESTS]` starts a server of a tiny checkpoint, sends them from eight clients, and says
what was answered, what stayed alive and how memory moved. It fails where an answer was lost, wrong, or left something.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKPOINT = Path(__file__).parents[2] / "golden" / "models" / "llama" / "checkpoint"
PROGRAM = "from tokenline.cli import main; main()"
# Room for three rows of the context: some wait, and the largest wait alone.
LIMITS = ["--parallel", "6", "--max-queue", "64", "--prompt-concurrency", "2", "--kv-budget", "2M"]
CLIENTS = 8
# Answers whose words are known: each is asked again and again among the others.
KNOWN = tuple({"prompt": "The keeper " * n, "max_tokens": 4 * n, "ignore_eos": True} for n in range(1, 6))
BAD = (
    (b"{", 400),
    (b'{"prompt": 3}', 400),
    (b'{"prompt": "x", "max_tokens": -1}', 400),
    (b'{"prompt": "x", "tempreature": 1}', 400),
    (b'{"prompt": "x", "priority": 99}', 400),
    (b'{"prompt": ""}', 400),
)


@dataclass
class Soak:
    """What came of the requests."""

    port: int
    known: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def ask(
        self, body: bytes, *, path: str = "/v1/completions", read: int | None = None
    ) -> tuple[int, bytes]:
        """Status and body; of a stream that is left, what was read of it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(
            "POST" if body else "GET", path, body or None, {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        said = response.read() if read is None else response.read(read)
        connection.close()
        return response.status, said

    def text(self, fields: dict[str, Any]) -> str:
        _, said = self.ask(json.dumps(fields).encode())
        return json.loads(said)["choices"][0]["text"]

    def streamed(self, fields: dict[str, Any]) -> str:
        _, said = self.ask(json.dumps({**fields, "stream": True}).encode())
        events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith(b"data: {")]
        if not said.rstrip().endswith(b"data: [DONE]"):
            return "a stream without an end"
        return "".join(choice["text"] for event in events for choice in event["choices"])

    def one(self, index: int) -> None:
        draw = random.Random(index)
        which = draw.randrange(len(KNOWN))
        kind = draw.choices(
            ("whole", "streamed", "left", "cut", "bad", "long", "seeded"), (25, 25, 15, 5, 15, 5, 10)
        )[0]
        self.counts[kind] += 1
        if kind == "whole":
            self.expect(index, kind, self.text(KNOWN[which]), self.known[which])
        elif kind == "streamed":
            self.expect(index, kind, self.streamed(KNOWN[which]), self.known[which])
        elif kind == "left":
            fields = {"prompt": "On and on", "max_tokens": 400, "ignore_eos": True, "stream": True}
            self.expect(
                index, kind, self.ask(json.dumps(fields).encode(), read=draw.randrange(1, 900))[0], 200
            )
        elif kind == "cut":
            with socket.create_connection(("127.0.0.1", self.port)) as connection:
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n{")
        elif kind == "bad":
            body, status = draw.choice(BAD)
            self.expect(index, kind, self.ask(body)[0], status)
        elif kind == "long":
            fields = {"prompt": "and the sea " * draw.randrange(20, 80), "max_tokens": 3, "ignore_eos": True}
            self.expect(index, kind, self.ask(json.dumps(fields).encode())[0], 200)
        else:
            fields = {**KNOWN[which], "temperature": 0.9, "seed": 5, "priority": draw.randrange(-3, 4)}
            first = self.text(fields)
            self.expect(index, kind, self.text(fields), first)

    def expect(self, index: int, kind: str, said: object, expected: object) -> None:
        if said != expected:
            self.wrong.append(f"request {index} ({kind}): {said!r} where {expected!r} is expected")

    def health(self) -> dict[str, Any]:
        return json.loads(self.ask(b"", path="/health")[1])

    def idle(self) -> dict[str, Any]:
        """Its health once no row is alive, or after ten seconds."""
        until = time.monotonic() + 10
        while (health := self.health())["running"] + health["queued"] and time.monotonic() < until:
            time.sleep(0.05)
        return health


def resident_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@contextlib.contextmanager
def served(port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server of the checkpoint, and where it listens."""
    command = [sys.executable, "-c", PROGRAM, "serve", "-m", str(CHECKPOINT), "--port", str(port), *LIMITS]
    command += ["--backend", "torch", "--threads", "1", "--cache-bytes", "4000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            lines = iter(server.stderr.readline, "")
            found = next(
                match for line in lines if (match := re.search(r"listening on http://\S+:(\d+)", line))
            )
            yield server, int(found[1])
        finally:
            server.kill()


def soaked(requests: int, *, clients: int = CLIENTS) -> tuple[Soak, dict[str, Any], list[int]]:
    """The soak, the server's health after it, and its resident bytes after each fifth of the requests."""
    with served() as (server, port):
        soak = Soak(port)
        soak.known = [soak.text(fields) for fields in KNOWN]
        resident = []
        with ThreadPoolExecutor(clients) as pool:
            for part in range(5):
                list(pool.map(soak.one, range(requests * part // 5, requests * (part + 1) // 5)))
                resident.append(resident_bytes(server.pid))
        health = soak.idle()
        server.terminate()
        _, rest = server.communicate(timeout=30)
        if server.returncode != 0 or "Traceback" in rest:
            soak.wrong.append(f"the server ended with {server.returncode}: {rest}")
        return soak, health, resident


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    began = time.monotonic()
    soak, health, resident = soaked(requests)
    megabytes = ", ".join(f"{each / 1e6:.0f}" for each in resident)
    print(f"{requests} requests in {time.monotonic() - began:.0f} s: {dict(soak.counts)}")
    print(f"resident after each fifth, MB: {megabytes}; health: {health}")
    for line in soak.wrong[:20]:
        print(line)
    left = health["running"] + health["queued"] + health["kv_bytes"]
    if soak.wrong or left or resident[-1] > 1.1 * resident[1]:
        raise SystemExit(f"{len(soak.wrong)} wrong, {left} rows and bytes left, memory {megabytes}")


if __name__ == "__main__":
    main()
