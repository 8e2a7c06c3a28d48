"""What a finished row is reported as, and what it was run with: plain JSON values, the same from every transport."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec

from tokenline.checkpoint.checkpoint import Checkpoint
from tokenline.decode.finish import FinishCause, wire_reason
from tokenline.decode.prefill_plan import PREFILL_SIZE
from tokenline.ops import Ops
from tokenline.row import Row


def _timings(row: Row) -> dict[str, Any]:
    clock = row.clock
    first = clock.tokens[0] if clock.tokens else clock.finished
    return {
        "queue_ns": (clock.started or clock.finished) - clock.submitted,
        "prefill_ns": clock.prefilled - clock.started if clock.prefilled else 0,
        "time_to_first_token_ns": first - clock.submitted,
        "total_ns": clock.finished - clock.submitted,
        "decode_ns": clock.finished - clock.prefilled if clock.prefilled else 0,
        "token_ns": [b - a for a, b in pairwise(clock.tokens)],
        "truncated_by": row.truncated_by if _truncated(row) else None,
    }


def _truncated(row: Row) -> bool:
    """Whether a bound that is no number of tokens cut the text off: the context's end, time, indentation."""
    return row.cause in (FinishCause.CONTEXT_EXHAUSTED, FinishCause.GENERATION_BOUND)


def _sampling(row: Row) -> dict[str, Any]:
    """The request's settings, and what they came to."""
    settings = row.parameters.sampling
    _, presence, frequency = settings.windows
    plain = msgspec.to_builtins(settings)
    return {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()},
        "presence_window": presence,
        "frequency_window": frequency,
        "samplers": list(settings.order),
        "seed": row.parameters.seed,
    }


def manifest_of(checkpoint: Checkpoint, ops: Ops, pipelined: bool) -> dict[str, Any]:
    """What a stream's words depend on, apart from the request."""
    template = checkpoint.text.template
    packages = ("torch", "mlx", "numpy", "tokenizers", "jinja2", "llguidance")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "engine": "tokenline",
        "version": importlib.metadata.version("paritygate"),
        "backend": ops.name,
        "device": ops.device,
        "dtype": ops.dtype,
        "weight_bits": ops.precision.weight_bits,
        "weight_group": ops.precision.weight_group if ops.precision.weight_bits else None,
        "kv_bits": ops.precision.kv_bits,
        "threads": ops.threads,
        "blas": ops.blas,
        "model": checkpoint.name,
        "family": checkpoint.family,
        "weights_hash": checkpoint.weights_hash,
        "tokenizer_hash": checkpoint.text.tokenizer.hash,
        "template_hash": template.hash if template else None,
        "generation_config": checkpoint.generation_config,
        "prefill_size": PREFILL_SIZE,
        "cache_reuse": "exact",
        "pipelined": pipelined,
        "libraries": versions,
        "machine": f"{platform.system()} {platform.machine()}",
    }


def prompt_tokens_read(result: Mapping[str, Any]) -> int:
    """Of the prompt, what was computed or found before the row ended: all of it, unless the row was cancelled early."""
    counters = result["counters"]
    return max([counters["cached_tokens"], *(stop for _, stop in counters["prefill_pieces"])])


def result_of(row: Row, manifest: Mapping[str, Any], adapter_hash: str | None = None) -> dict[str, Any]:
    """The result object; `manifest` is the model's, to which the request's resolved settings are added."""
    cause = row.cause or FinishCause.ERROR
    counters, message = row.counters, row.message
    result: dict[str, Any] = {
        "text": row.text,
        "prompt_token_ids": list(row.prompt),
        "token_ids": list(row.generated),
        "logprobs": list(row.logprobs) if row.parameters.top_logprobs is not None else None,
        "finish_reason": wire_reason(cause, called=bool(message and message.get("tool_calls"))),
        "finish_cause": str(cause),
        "stop_sequence": row.stop_found,
        "truncated": _truncated(row),
        "usage": {
            "prompt_tokens": len(row.prompt),
            "completion_tokens": len(row.generated),
            "total_tokens": len(row.prompt) + len(row.generated),
            "cached_tokens": counters.cached_tokens,
        },
        "timings": _timings(row),
        "manifest": {
            **manifest,
            "adapter": row.request.adapter,
            "adapter_hash": adapter_hash,
            "sampling": _sampling(row),
            "logprobs_mode": row.request.logprobs_mode,
            "max_tokens": row.request.max_tokens,
            "stop": list(row.request.stop),
            "grammar_hash": row.grammar_hash,
        },
        "counters": {
            "prefill_pieces": [list(piece) for piece in counters.prefill_pieces],
            "split_points": list(row.plan.split_points),
            "cached_tokens": counters.cached_tokens,
            "forwards": counters.prefill_forwards + counters.decode_forwards,
            "prefill_forwards": counters.prefill_forwards,
            "decode_forwards": counters.decode_forwards,
            "host_reads": counters.host_reads,
            "head_positions": counters.head_positions,
            "max_rows": counters.max_rows,
            "bytes_copied": counters.bytes_copied,
        },
    }
    if message is not None:
        result["message"] = message
    if row.prompt_logprobs is not None:
        result["prompt_logprobs"] = row.prompt_logprobs
    if row.error is not None:
        result["error"] = row.error
        if row.error_param is not None:
            result["error_param"] = row.error_param
    return result
