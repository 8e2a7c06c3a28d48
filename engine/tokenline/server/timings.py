"""`timings` as llama.cpp's server words them: what a prompt and an answer took, in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MS, SECOND = 1e6, 1e9


def timings_of(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one row, or summed over the rows of an answer: `cache_n` tokens of the prompts were found, `prompt_n`
    computed, `predicted_n` drawn. The rates are there because clients of that server show them."""
    found = sum(result["usage"]["cached_tokens"] for result in results)
    asked = sum(len(result["prompt_token_ids"]) for result in results) - found
    drawn = sum(result["usage"]["completion_tokens"] for result in results)
    prefill_ns = sum(result["timings"]["prefill_ns"] for result in results)
    decode_ns = sum(result["timings"]["decode_ns"] for result in results)
    return {
        "cache_n": found,
        "prompt_n": asked,
        "prompt_ms": prefill_ns / MS,
        "prompt_per_token_ms": prefill_ns / MS / asked if asked else 0.0,
        "prompt_per_second": asked * SECOND / prefill_ns if prefill_ns else 0.0,
        "predicted_n": drawn,
        "predicted_ms": decode_ns / MS,
        "predicted_per_token_ms": decode_ns / MS / drawn if drawn else 0.0,
        "predicted_per_second": drawn * SECOND / decode_ns if decode_ns else 0.0,
    }
