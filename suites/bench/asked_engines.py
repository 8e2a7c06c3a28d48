"""Engines in a process of their own that a load asks line by line: ours without a server, transformers' own batches."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
                answer({"token_s": sum(clock["token_ns"]) / len(clock["token_ns"]) / 1e9})
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
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

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
        made = model.generate_batch(
            inputs,
            generation_config=settings,
            # Pages for 16 sequences of 512 tokens: unless told, it takes nearly all memory that is free.
            continuous_batching_config=ContinuousBatchingConfig(num_blocks=32, max_batch_tokens=1024),
            record_timestamps=True,
            warmup=False,
        )
        told = [each.timestamps for each in made.values()]
        # From first tokens to last: what its manager takes to start is not counted.
        took = max(each[-1] for each in told) - min(each[0] for each in told)
        answer({"token_s": took / sum(len(each) - 1 for each in told)})


def main() -> None:
    """The child: which engine it is, how many threads it has, what it reads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("threads", type=int)
    parser.add_argument("model")
    asked = parser.parse_args()
    if asked.engine == "transformers":
        transformers_batches(asked.model, asked.threads)
    else:
        in_process(asked.model, asked.engine, asked.threads)


if __name__ == "__main__":
    main()
