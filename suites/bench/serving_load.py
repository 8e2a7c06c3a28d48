"""What serving costs: a stream beside the same answer in process, eight answers at once, a long prompt that joins.

`python suites/bench/serving_load.py [MODEL]` on a quiet machine prints microseconds per token, medians and spread, of
our server on both backends, mlx-lm's server and transformers' continuous batching: float32, the same prompts, as many
threads each, measured by turns (ABBA) in one run. Every engine is a process of its own, alive and idle between turns.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from asked_engines import PROMPTS, Child

from paritygate.arms.hugging_face import save_directory
from paritygate.bench.bandwidth import read_bandwidth

PROGRAM = "from tokenline.cli import main; main()"
MLX_LM = (
    "import sys; from paritygate.arms.mlx_lm_model import load_blas; load_blas(int(sys.argv.pop())); "
    "from mlx_lm.server import main; main()"
)


@dataclass
class Served:
    """An engine behind HTTP."""

    port: int
    model: str
    tokens: int

    def stream(self, prompt: str) -> list[float]:
        """When each piece of the answer arrived, after when it was asked for."""
        arrived = [time.perf_counter()]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": self.tokens,
            "stream": True,
            "temperature": 0,
        }
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(f"{self.model} answers {response.status}: {response.read().decode()}")
        ended = None
        for line in response:
            if line.startswith(b"data: {"):
                [choice] = json.loads(line[6:])["choices"] or [{}]
                arrived.append(time.perf_counter())
                ended = choice.get("finish_reason") or ended
        connection.close()
        if ended != "length":
            raise SystemExit(f"an answer of {self.model} ended with {ended}: nothing can be compared")
        return arrived

    def one(self) -> float:
        """Seconds a token, from the first to the last."""
        arrived = self.stream(PROMPTS[0])
        return (arrived[-1] - arrived[1]) / (self.tokens - 1)

    def together(self, count: int) -> float:
        """Seconds a token over all answers, from the asking to the last end."""
        with ThreadPoolExecutor(count) as pool:
            began = time.perf_counter()
            list(pool.map(self.stream, PROMPTS[:count]))
            return (time.perf_counter() - began) / (count * self.tokens)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(name: str, command: list[str], port: int, tokens: int) -> Iterator[Served]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None:
                raise SystemExit(f"{name} did not start: {' '.join(command)}")
            time.sleep(0.2)
        yield Served(port, name, tokens)
    finally:
        process.terminate()
        process.wait(30)


@dataclass
class Times:
    """Seconds by what was measured."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def show(self) -> None:
        for name, seconds in self.seconds.items():
            low, middle, high = (1e6 * pick(seconds) for pick in (min, statistics.median, max))
            print(f"{name:34} {middle:10.0f} µs ({low:.0f} to {high:.0f})")


def measured(model: str, threads: int, tokens: int, rounds: int) -> Times:
    times = Times()
    with contextlib.ExitStack() as alive:
        directory = Path(alive.enter_context(tempfile.TemporaryDirectory()))
        save_directory(Path(model), directory)
        servers = {}
        for backend in ("torch", "mlx"):
            port = free_port()
            command = [
                sys.executable,
                "-c",
                PROGRAM,
                "serve",
                "-m",
                model,
                "--backend",
                backend,
                "--port",
                str(port),
            ]
            command += [
                "--dtype",
                "float32",
                "--threads",
                str(threads),
                "--parallel",
                "8",
                "--cache-bytes",
                "0",
            ]
            servers[backend] = alive.enter_context(serving(model, command, port, tokens))
        port = free_port()
        command = [sys.executable, "-c", MLX_LM, "--model", str(directory), "--port", str(port), str(threads)]
        servers["mlx-lm"] = alive.enter_context(serving("default_model", command, port, tokens))
        children = {backend: Child(backend, str(threads), model) for backend in ("torch", "mlx")}
        children["transformers"] = Child("transformers", str(threads), str(directory))
        for child in children.values():
            alive.callback(child.close)
        turns: dict[str, Callable[[], float]] = {}
        for name, server in servers.items():
            turns[f"{name} served, 1"] = server.one
            turns[f"{name} served, 1 with its prompt"] = lambda server=server: server.together(1)
            turns[f"{name} served, 8"] = lambda server=server: server.together(8)
        for name in ("torch", "mlx"):
            turns[f"{name} in process, 1"] = lambda name=name: children[name].ask(tokens=tokens)["token_s"]
        for count in (1, 8):
            turns[f"transformers in process, {count}"] = lambda count=count: children["transformers"].ask(
                tokens=tokens, count=count
            )["token_s"]
        for turn in turns.values():  # warm
            turn()
        for index in range(rounds):
            order = list(turns.items())
            for name, turn in order if index % 2 == 0 else reversed(order):
                times.add(name, turn())
        for name in ("torch", "mlx"):
            for _ in range(rounds):
                told = children[name].ask(tokens=1000, joiner=True)
                for part, seconds in told.items():
                    times.add(f"{name} joined by a long prompt: {part[:-2]}", seconds)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    asked = parser.parse_args()
    from tokenline.checkpoint.alias import resolve

    times = measured(str(resolve(asked.model)), asked.threads, asked.tokens, asked.rounds)
    times.show()
    for name in ("torch", "mlx"):
        ratio = times.median(f"{name} served, 1") / times.median(f"{name} in process, 1")
        print(f"{name}: a served token takes {ratio:.3f} of one in process")
    for name in ("torch served", "mlx served", "mlx-lm served", "transformers in process"):
        one = f"{name}, 1 with its prompt" if "served" in name else f"{name}, 1"
        print(
            f"{name}: 8 at once say {times.median(one) / times.median(f'{name}, 8'):.2f} times as much as 1"
        )
    for name in ("torch", "mlx"):
        gap, step, piece = (
            times.median(f"{name} joined by a long prompt: {part}")
            for part in ("longest_gap", "step", "piece")
        )
        print(f"{name}: the longest gap is {gap / (step + piece):.2f} of a piece and a step")
    print(f"memory is read at {read_bandwidth() / 1e9:.1f} GB/s: a step reads every weight once")


if __name__ == "__main__":
    main()
