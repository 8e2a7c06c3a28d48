"""A short soak, and what is left when a client or a server is killed: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from soak import Soak, served, soaked

ENDLESS = {"prompt": "On and on", "max_tokens": 480, "ignore_eos": True, "stream": True}
# A client that says that it has read something, and reads on.
CLIENT = """
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("POST", "/v1/completions", sys.argv[2])
response = connection.getresponse()
while line := response.readline():
    print(line.decode(), flush=True)
"""


def test_a_hundred_mixed_requests_lose_nothing_and_leave_nothing() -> None:
    soak, health, resident = soaked(100)
    assert soak.wrong == []
    assert (
        min(soak.counts[kind] for kind in ("whole", "streamed", "left", "bad", "seeded", "long", "cut")) >= 1
    )
    assert [health[name] for name in ("running", "queued", "prefilling", "kv_bytes")] == [0] * 4
    assert set(health["finished"]) == {"Length", "Cancelled"}
    answered = (
        soak.counts["whole"] + soak.counts["streamed"] + soak.counts["long"] + 2 * soak.counts["seeded"]
    )
    # The known answers first; one that was left may have come to its end before that was seen.
    assert health["finished"]["Length"] >= len(soak.known) + answered
    assert sum(health["finished"].values()) == len(soak.known) + answered + soak.counts["left"]
    assert health["prompt_cache"]["bytes"] <= health["prompt_cache"]["limit_bytes"]
    assert resident[-1] < 1.25 * resident[1]


def test_killing_clients_leaves_no_row_and_killing_the_server_leaves_no_port() -> None:
    with served() as (server, port):
        soak = Soak(port)
        body = httpx.Request("POST", "http://x", json=ENDLESS).content.decode()
        clients = [
            subprocess.Popen([sys.executable, "-c", CLIENT, str(port), body], stdout=subprocess.PIPE)
            for _ in range(3)
        ]
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline().startswith(b"data: ")
            client.kill()
            client.wait()
            client.stdout.close()
        health = soak.idle()
        assert [health[name] for name in ("running", "queued", "kv_bytes")] == [0, 0, 0]
        assert soak.text({"prompt": "Once", "max_tokens": 4, "ignore_eos": True})
        with httpx.stream("POST", f"http://127.0.0.1:{port}/v1/completions", json=ENDLESS) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            tasks = Path(f"/proc/{server.pid}/task").iterdir()
            assert [
                task.joinpath("children").read_text()
                for task in tasks
                if task.joinpath("children").read_text()
            ] == []
            os.kill(server.pid, signal.SIGKILL)
            with pytest.raises(httpx.HTTPError):  # not an answer that looks finished
                list(lines)
        assert server.wait(10) == -signal.SIGKILL
    with served(port) as (again, where):
        assert where == port
        assert Soak(port).text({"prompt": "Once", "max_tokens": 4, "ignore_eos": True})
        again.send_signal(signal.SIGTERM)
        _, said = again.communicate(timeout=30)
        assert (again.returncode, said) == (0, "tokenline: stopped\n")
