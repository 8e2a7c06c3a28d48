"""/metrics: what Prometheus reads, under vLLM's names where it has them, so that its dashboards show this server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from tokenline.result import prompt_tokens_read

if TYPE_CHECKING:
    from tokenline.client import Model

MEDIA_TYPE = CONTENT_TYPE_LATEST
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
BETWEEN_TOKENS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
REQUEST_S = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
# vLLM's words for how a request ended, for ours that it does not have.
_ENDED = {"cancelled": "abort", "tool_calls": "stop"}


class Metrics:
    """One model's, in a registry of its own. Histograms and counters grow with every row that ends; gauges are asked
    for when they are read."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._registry = CollectorRegistry()
        self._running = self._gauge("num_requests_running", "Rows that run.")
        self._waiting = self._gauge("num_requests_waiting", "Requests that wait.")
        self._kv_cache = self._gauge(
            "kv_cache_usage_perc",
            "Share of the byte budget that layer caches of rows and stored states take, 0 to 1.",
        )
        self._prompt_tokens = self._counter(
            "prompt_tokens", "Tokens of prompts that were read, cached ones too."
        )
        self._generated = self._counter("generation_tokens", "Tokens drawn.")
        self._queried = self._counter(
            "prefix_cache_queries", "Tokens of prompts, all looked for in the cache."
        )
        self._hit = self._counter("prefix_cache_hits", "Tokens of prompts that were found in the cache.")
        self._ended = self._counter("request_success", "Requests by how they ended.", "finished_reason")
        self._first_token = self._histogram(
            "time_to_first_token_seconds", "Until the first token.", FIRST_TOKEN_S
        )
        self._between = self._histogram(
            "inter_token_latency_seconds", "Between two tokens.", BETWEEN_TOKENS_S
        )
        self._whole = self._histogram("e2e_request_latency_seconds", "From submission to end.", REQUEST_S)
        self._queue = self._histogram("request_queue_time_seconds", "Until a request ran.", REQUEST_S)
        self._prefill = self._histogram("request_prefill_time_seconds", "In prefill.", REQUEST_S)
        self._decode = self._histogram("request_decode_time_seconds", "In decoding.", REQUEST_S)
        self._asked = self._histogram("request_prompt_tokens", "Tokens of a prompt.", TOKENS)
        self._answered = self._histogram("request_generation_tokens", "Tokens of an answer.", TOKENS)
        model.observe(self.note)

    def note(self, result: Mapping[str, Any]) -> None:
        """A row has ended; called on the engine's thread."""
        usage, timings = result["usage"], result["timings"]
        reason = result["finish_reason"]
        self._ended.labels(self._model.name, _ENDED.get(reason, reason)).inc()
        read = prompt_tokens_read(result)
        for counter, tokens in (
            (self._prompt_tokens, read),
            (self._queried, read),
            (self._hit, usage["cached_tokens"]),
            (self._generated, usage["completion_tokens"]),
        ):
            counter.labels(self._model.name).inc(tokens)
        self._observe(self._asked, usage["prompt_tokens"])
        self._observe(self._answered, usage["completion_tokens"])
        for histogram, name in (
            (self._whole, "total_ns"),
            (self._queue, "queue_ns"),
            (self._prefill, "prefill_ns"),
            (self._decode, "decode_ns"),
        ):
            self._observe(histogram, timings[name] / 1e9)
        if result["token_ids"]:
            self._observe(self._first_token, timings["time_to_first_token_ns"] / 1e9)
        for nanoseconds in timings["token_ns"]:
            self._observe(self._between, nanoseconds / 1e9)

    def exposed(self) -> bytes:
        """Everything in the text format; waits for the engine."""
        stats, cache = self._model.stats(), self._model.cache_stats()
        for gauge, value in ((self._running, stats["running"]), (self._waiting, stats["queued"])):
            gauge.labels(self._model.name).set(value)
        self._kv_cache.labels(self._model.name).set(_usage(stats, cache))
        return generate_latest(self._registry)

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(f"vllm:{name}", what, ["model_name"], registry=self._registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        made = Counter(f"vllm:{name}", what, ["model_name", *labels], registry=self._registry)
        if not labels:
            made.labels(self._model.name)  # 0 before the first row, not absent
        return made

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(f"vllm:{name}", what, ["model_name"], buckets=buckets, registry=self._registry)
        made.labels(self._model.name)
        return made

    def _observe(self, histogram: Histogram, value: float) -> None:
        histogram.labels(self._model.name).observe(value)


def _usage(stats: Mapping[str, Any], cache: Mapping[str, Any]) -> float:
    """Of the budget of layer caches; where none is set, of the limit that rows and stored states share."""
    if stats["kv_budget_bytes"]:
        return stats["kv_bytes"] / stats["kv_budget_bytes"]
    limit = cache["limit_bytes"]
    return min(1.0, (cache["bytes"] + stats["kv_bytes"]) / limit) if limit else 0.0
