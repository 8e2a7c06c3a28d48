"""What a caller asks for: one typed request, the same for the CLI, the server and Python."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from tokenline.errors import RequestError

MAX_TOP_LOGPROBS = 20


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is drawn. Every default leaves the distribution alone; temperature 0 is greedy.

    `penalty_window` is the number of most recent tokens (prompt included) that the penalties see; -1 is all
    of them, 0 none. `seed=None` draws a seed once, and the manifest shows which.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)
    seed: int | None = None

    @property
    def needs_history(self) -> bool:
        """Whether a stage reads the tokens so far, so that a draw must wait for the token before it."""
        return self.penalty_window != 0 and (
            self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
        )


class LoopDetection(msgspec.Struct, frozen=True, kw_only=True):
    """Stops a row whose tail repeats: `repeats` copies of a period of at most `max_period` tokens."""

    max_period: int = 64
    repeats: int = 4
    min_tokens: int = 32


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One generation. Exactly one of `prompt`, `prompt_token_ids` and `messages` is given.

    `logprobs` is the number of alternatives reported per token (0 reports the chosen token alone), None none.
    """

    prompt: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    messages: tuple[dict[str, Any], ...] | None = None
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    ignore_eos: bool = False
    loop_detection: LoopDetection | None = None
    cache_prompt: bool = True


def _require(ok: bool, param: str, what: str, mend: str) -> None:
    if not ok:
        raise RequestError(what, mend, param=param)


def validate(request: Request, vocabulary_size: int) -> None:
    """Raise RequestError, naming the field, for a request that no engine state could make valid."""
    given = [
        name for name in ("prompt", "prompt_token_ids", "messages") if getattr(request, name) is not None
    ]
    _require(
        len(given) == 1,
        given[1] if len(given) > 1 else "prompt",
        f"one of prompt, prompt_token_ids and messages is needed, {len(given)} were given",
        "give exactly one",
    )
    s = request.sampling
    for name in (
        "temperature",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
    ):
        _require(
            math.isfinite(getattr(s, name)), name, f"{name} is not a finite number", "give a finite number"
        )
    _require(
        s.temperature >= 0,
        "temperature",
        f"temperature {s.temperature} is negative",
        "use 0 (greedy) or more",
    )
    _require(s.top_k >= 0, "top_k", f"top_k {s.top_k} is negative", "use 0 (off) or more")
    _require(
        0 < s.top_p <= 1, "top_p", f"top_p {s.top_p} is outside (0, 1]", "use 1 (off) or a share of the mass"
    )
    _require(0 <= s.min_p <= 1, "min_p", f"min_p {s.min_p} is outside [0, 1]", "use 0 (off) up to 1")
    _require(
        s.repetition_penalty > 0,
        "repetition_penalty",
        f"repetition_penalty {s.repetition_penalty} is not positive",
        "use 1 (off) or more",
    )
    for name in ("presence_penalty", "frequency_penalty"):
        _require(
            -2 <= getattr(s, name) <= 2, name, f"{name} {getattr(s, name)} is outside [-2, 2]", "use -2 to 2"
        )
    _require(
        s.penalty_window >= -1,
        "penalty_window",
        f"penalty_window {s.penalty_window} is below -1",
        "use -1 (all), 0 (none) or a number of tokens",
    )
    _require(
        s.seed is None or 0 <= s.seed < 2**64,
        "seed",
        f"seed {s.seed} is outside [0, 2^64)",
        "use a whole number from 0",
    )
    for token, bias in s.logit_bias.items():
        _require(
            0 <= token < vocabulary_size,
            "logit_bias",
            f"logit_bias names token {token}, outside the vocabulary of {vocabulary_size}",
            "use its token ids",
        )
        _require(
            not math.isnan(bias) and abs(bias) <= 100,
            "logit_bias",
            f"logit_bias {bias} of token {token} is outside [-100, 100]",
            "use -100 to 100",
        )
    _require(
        request.max_tokens is None or request.max_tokens >= 0,
        "max_tokens",
        f"max_tokens {request.max_tokens} is negative",
        "use 0 or more",
    )
    _require(all(request.stop), "stop", "a stop string is empty", "leave it out, or give it text")
    _require(
        request.logprobs is None or 0 <= request.logprobs <= MAX_TOP_LOGPROBS,
        "logprobs",
        f"{request.logprobs} logprobs were asked for",
        f"use 0 to {MAX_TOP_LOGPROBS}",
    )
    loop = request.loop_detection
    if loop is not None:
        _require(
            loop.max_period >= 1 and loop.repeats >= 2,
            "loop_detection",
            "loop detection needs a period of at least 1 and 2 repeats",
            "raise max_period or repeats",
        )
    for token in request.prompt_token_ids or ():
        _require(
            0 <= token < vocabulary_size,
            "prompt",
            f"token {token} is outside the vocabulary of {vocabulary_size}",
            "use the checkpoint's token ids",
        )
