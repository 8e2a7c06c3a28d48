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
from typing import Any

from paritygate.bench.bandwidth import read_bandwidth
from paritygate.policy.case_file import load_cases

# Prompts that two oracles answer with 64 tokens and more, so that every engine says as many.
CASES = (
    "plain-bees",
    "plain-water-cycle",
    "plain-train",
    "utf8-greek",
    "code-python",
    "code-c",
    "list-months",
    "utf8-russian",
)
PROMPTS = [
    case.prompt
    for case in load_cases(Path(__file__).parents[2] / "golden" / "smollm2-135m" / "cases.toml")
    if case.name in CASES
]
LONG_TOKENS = 2000
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


class Child:
    """An engine in a process of its own that answers one line for one line."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def answering() -> Callable[[Any], None]:
    """Answers go where stdout went; what a library prints goes to stderr."""
    told, sys.stdout = sys.stdout, sys.stderr
    return lambda value: print(json.dumps(value), file=told, flush=True)


def in_process(model: str, backend: str, threads: int) -> None:
    """The child: our engine without a server."""
    import tokenline
    from tokenline.client import request_of

    with tokenline.load(
        model, backend=backend, dtype="float32", threads=threads, parallel=8, cache_bytes=0
    ) as loaded:
        long = [int(token) % 1000 + 100 for token in range(LONG_TOKENS)]
        answer = answering()
        for line in sys.stdin:
            asked = json.loads(line)
            request = request_of(PROMPTS[0], max_tokens=asked["tokens"], ignore_eos=True)
            if not asked.get("joiner"):
                clock = loaded.submit(request).result()["timings"]
                print(
                    json.dumps({"token_s": sum(clock["token_ns"]) / len(clock["token_ns"]) / 1e9}), flush=True
                )
                continue
            running = loaded.submit(request)
            events = iter(running)
            for _ in range(10):
                next(events)
            joined = loaded.submit(request_of(long, max_tokens=1, ignore_eos=True)).result()
            running.cancel()
            gaps = running.result()["timings"]["token_ns"]
            pieces = len(joined["counters"]["prefill_pieces"])
            alone = loaded.submit(request_of(long, max_tokens=1, ignore_eos=True)).result()["timings"]
            told = {
                "longest_gap_s": max(gaps[9:]) / 1e9,
                "step_s": statistics.median(gaps[:9]) / 1e9,
                "piece_s": alone["prefill_ns"] / (pieces - 1) / 1e9,  # the last piece is one token
            }
            answer(told)


def transformers_batches(directory: str, threads: int) -> None:
    """The child: transformers' continuous batching."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    answer = answering()
    for line in sys.stdin:
        asked = json.loads(line)
        settings = transformers.GenerationConfig(
            max_new_tokens=asked["tokens"], do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        inputs = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS[: asked["count"]]]
        made = model.generate_batch(inputs, generation_config=settings, record_timestamps=True, warmup=False)
        told = [each.timestamps for each in made.values()]
        # From first tokens to last: what its manager takes to start is not counted.
        took = max(each[-1] for each in told) - min(each[0] for each in told)
        answer({"token_s": took / sum(len(each) - 1 for each in told)})


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


def dense_directory(model: str, directory: Path) -> Path:
    """The same weights as the others read them: a Hugging Face directory in float32."""
    import torch
    import transformers

    path = Path(model)
    place = (str(path.parent), {"gguf_file": path.name}) if path.is_file() else (model, {})
    made = transformers.AutoModelForCausalLM.from_pretrained(place[0], **place[1], dtype=torch.float32)
    config = made.config.to_dict()
    config.pop("quantization_config", None)  # it would not be written as what it is now: dense
    dense = type(made)(type(made.config).from_dict(config))
    dense.load_state_dict(made.state_dict())
    dense.save_pretrained(directory)
    transformers.AutoTokenizer.from_pretrained(place[0], **place[1]).save_pretrained(directory)
    return directory


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
        directory = dense_directory(model, Path(alive.enter_context(tempfile.TemporaryDirectory())))
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
        children = {
            backend: Child("--child", backend, "--threads", str(threads), model)
            for backend in ("torch", "mlx")
        }
        children["transformers"] = Child("--child", "transformers", "--threads", str(threads), str(directory))
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
    parser.add_argument("--child")
    asked = parser.parse_args()
    if asked.child == "transformers":
        transformers_batches(asked.model, asked.threads)
        return
    if asked.child:
        in_process(asked.model, asked.child, asked.threads)
        return
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
