"""What one fresh process measured: nanoseconds by the harness's own clock, tokens, and work counters."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import Any

import msgspec


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is asked to measure. an empty `decode_prompt` means the built-in text.

    `kind` and `options` are those of an arm; `expected` is the golden's tokens, empty where there is none.
    """

    kind: str
    options: dict[str, Any]
    model: str
    decode_prompt: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    prompt_tokens: int = 512
    decode_tokens: int = 32
    warmup_tokens: int = 8
    threads: int = 1


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One process's measurements; every `_ns` is a time, lower is better.

    `token_ns` are the gaps between successive tokens as a listener sees them, `prefill_ns` is per prompt token,
    `first_token_ns` is from the request to the first text of the short prompt.
    """

    engine_file: str
    token_ns: tuple[int, ...]
    prefill_ns: float
    first_token_ns: float
    token_ids: tuple[int, ...]
    prompt_tokens: int
    decode_counters: dict[str, Any]
    prefill_counters: dict[str, Any]
    manifest: dict[str, Any]
    weight_bytes: int
    read_bytes_per_second: float
    load_average: float
    open_seconds: float

    @property
    def decode_ns(self) -> float:
        """The median gap between tokens: one token's decode step, deaf to a hiccup of the machine."""
        return statistics.median(self.token_ns)

    @property
    def memory_floor_ns(self) -> float:
        """The time that reading every weight once takes at the bandwidth measured in this process."""
        return self.weight_bytes / self.read_bytes_per_second * 1e9


def gaps(arrivals_ns: tuple[int, ...]) -> tuple[int, ...]:
    """The times between successive arrivals."""
    return tuple(later - earlier for earlier, later in pairwise(arrivals_ns))


FIGURES: dict[str, str] = {
    "decode": "decode_ns",
    "prefill": "prefill_ns",
    "time-to-first-token": "first_token_ns",
}
UNITS = {
    "decode": "ns per token",
    "prefill": "ns per prompt token",
    "time-to-first-token": "ns",
}


def figure(observation: Observation, name: str) -> float:
    """The value of a figure by its name; always a time, lower is better."""
    return float(getattr(observation, FIGURES[name]))
