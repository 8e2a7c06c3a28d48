"""What a caller asks for: one typed request."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from tokenline.request.bounds import Range, require, require_ranges
from tokenline.request.sampling import Sampling, validate_sampling

MAX_TOP_LOGPROBS = 20


class LoopDetection(msgspec.Struct, frozen=True, kw_only=True):
    """Stops a row whose tail repeats: `repeats` copies of a period of at most `max_period` tokens."""

    max_period: int = 64
    repeats: int = 4
    min_tokens: int = 32


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One generation. Exactly one of `prompt`, `prompt_token_ids` and `messages` is given.

    `logprobs` is the number of alternatives reported per token (0 reports the chosen token alone), None none; of the
    processed distribution before temperature, or of the model's own with `logprobs_mode="raw"`. `prompt_logprobs` is
    the same for the prompt's tokens, always raw. `max_time_ms` bounds the time since the first token. `min_indent`
    ends the text before a line, the first excepted, that is indented by fewer spaces and tabs. `ignore_eos` goes on
    past an end of sequence that was drawn; `mask_eos` keeps it from being drawn.
    """

    prompt: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    messages: tuple[dict[str, Any], ...] | None = None
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    max_time_ms: int | None = None
    min_indent: int = 0
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    logprobs_mode: Literal["processed", "raw"] = "processed"
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    loop_detection: LoopDetection | None = None
    cache_prompt: bool = True


_REQUEST_RANGES: dict[str, Range] = {
    "max_time_ms": (1, True, math.inf, False, "use 1 or more"),
    "min_indent": (0, True, math.inf, False, "use 0 (off) or more"),
    "prompt_logprobs": (0, True, MAX_TOP_LOGPROBS, True, f"use 0 to {MAX_TOP_LOGPROBS}"),
}


def validate(request: Request, vocabulary_size: int) -> None:
    """Raise RequestError, naming the field, for a request that no engine state could make valid."""
    given = [
        name for name in ("prompt", "prompt_token_ids", "messages") if getattr(request, name) is not None
    ]
    require(
        len(given) == 1,
        given[1] if len(given) > 1 else "prompt",
        f"one of prompt, prompt_token_ids and messages is needed, {len(given)} were given",
        "give exactly one",
    )
    validate_sampling(request.sampling, vocabulary_size)
    require(
        request.max_tokens is None or request.max_tokens >= 0,
        "max_tokens",
        f"max_tokens {request.max_tokens} is negative",
        "use 0 or more",
    )
    require_ranges(request, _REQUEST_RANGES)
    require(all(request.stop), "stop", "a stop string is empty", "leave it out, or give it text")
    require(
        request.logprobs is None or 0 <= request.logprobs <= MAX_TOP_LOGPROBS,
        "logprobs",
        f"{request.logprobs} logprobs were asked for",
        f"use 0 to {MAX_TOP_LOGPROBS}",
    )
    loop = request.loop_detection
    if loop is not None:
        require(
            loop.max_period >= 1 and loop.repeats >= 2,
            "loop_detection",
            "loop detection needs a period of at least 1 and 2 repeats",
            "raise max_period or repeats",
        )
    for token in request.prompt_token_ids or ():
        require(
            0 <= token < vocabulary_size,
            "prompt",
            f"token {token} is outside the vocabulary of {vocabulary_size}",
            "use the checkpoint's token ids",
        )
