"""B=1 times of a commit's engine on the real checkpoint: nanoseconds, lower is better."""

from __future__ import annotations

import os
import statistics
import time
from itertools import pairwise
from pathlib import Path

MODEL = os.environ.get("PARITYGATE_MODEL") or "smollm2-135m"
PROMPT = "On the first day the keeper of the light wrote seven lines about the wind, the ships and the tide."
DECODE_TOKENS = 32
PREFILL_TOKENS = 512


class Timed:
    """One loaded engine, warmed up; the prompt cache is dropped before each measurement."""

    timeout = 300
    # What to plot: nanoseconds, so less is better. asv takes a `track_` value without statistics of its own.
    unit = "ns"
    params = ("torch", "mlx")
    param_names = ("backend",)

    def setup(self, backend: str) -> None:
        import tokenline

        self.file = Path(tokenline.__file__)
        self.model = tokenline.load(MODEL, backend=backend, dtype="float32", threads=1)
        self.short = self.model.tokenizer.encode(PROMPT)
        self.long = (self.short * (PREFILL_TOKENS // len(self.short) + 1))[:PREFILL_TOKENS]
        self.arrivals(self.short, 4)

    def teardown(self, backend: str) -> None:
        self.model.close()

    def arrivals(self, prompt: list[int], count: int) -> list[int]:
        """When each token arrived, counted from the request."""
        self.model.reset_cache()
        started = time.perf_counter_ns()
        found = [
            time.perf_counter_ns() - started
            for event in self.model.stream(prompt, max_tokens=count)
            if event.token_id is not None
        ]
        if len(found) != count:
            raise RuntimeError(f"{len(found)} tokens arrived where {count} were to be timed")
        return found


class Decode(Timed):
    def track_ns_per_token(self, backend: str) -> float:
        """The median gap between two tokens."""
        return statistics.median(b - a for a, b in pairwise(self.arrivals(self.short, DECODE_TOKENS)))


class Prefill(Timed):
    def track_ns_per_prompt_token(self, backend: str) -> float:
        """From the request to the first token of a prompt of 512, divided by 512."""
        return self.arrivals(self.long, 1)[0] / PREFILL_TOKENS


class FirstToken(Timed):
    def track_ns(self, backend: str) -> float:
        """From the request to the first token of a short prompt, the median of three."""
        return statistics.median(self.arrivals(self.short, 1)[0] for _ in range(3))
