"""What a caller asks for: one typed request, the same for the CLI, the server and Python."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from tokenline.errors import RequestError

MAX_TOP_LOGPROBS = 20

# The stages that a request may order. Bias and masks come before them all; the draw comes after.
PRESETS: dict[str, tuple[str, ...]] = {
    "llama.cpp": (
        "penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature",
    ),
    # What mlx-lm and vLLM do not have stands where llama.cpp has it, so that no preset ignores a setting.
    "mlx-lm": (
        "penalties", "dry", "top_n_sigma", "typical_p", "top_p", "min_p", "xtc", "top_k", "temperature",
    ),
    "vllm": (
        "penalties", "dry", "temperature", "min_p", "top_n_sigma", "top_k", "typical_p", "top_p", "xtc",
    ),
}  # fmt: skip
STAGES = PRESETS["llama.cpp"]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is drawn. Every default leaves the distribution alone.

    Temperature 0 is greedy: bias, masks, penalties and DRY act, truncation and XTC do not. `samplers` is a preset or
    stage names in the order wanted. Windows count the most recent tokens, prompt included: -1 all, 0 none; the
    presence and frequency windows are the penalty window unless given. `min_keep` tokens survive each truncation.
    `mask_eos` makes the end of sequence impossible to draw, as llama.cpp's ignore-eos does. `seed=None` draws a seed
    once, and the manifest shows which.
    """

    temperature: float = 0.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    min_keep: int = 1
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64
    presence_window: int | None = None
    frequency_window: int | None = None
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_window: int = -1
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)
    banned_tokens: tuple[int, ...] = ()
    allowed_tokens: tuple[int, ...] | None = None
    mask_eos: bool = False
    samplers: str | tuple[str, ...] = "llama.cpp"
    seed: int | None = None

    @property
    def order(self) -> tuple[str, ...]:
        return PRESETS[self.samplers] if isinstance(self.samplers, str) else self.samplers

    @property
    def windows(self) -> tuple[int, int, int]:
        """Of the repetition, presence and frequency penalties."""
        given = (self.presence_window, self.frequency_window)
        presence, frequency = (self.penalty_window if window is None else window for window in given)
        return self.penalty_window, presence, frequency

    @property
    def active(self) -> dict[str, str]:
        """The stages that do something, each with the field that asks for it."""
        repetition, presence, frequency = self.windows
        asked = {
            "repetition_penalty": ("penalties", self.repetition_penalty != 1 and repetition != 0),
            "presence_penalty": ("penalties", self.presence_penalty != 0 and presence != 0),
            "frequency_penalty": ("penalties", self.frequency_penalty != 0 and frequency != 0),
            "dry_multiplier": ("dry", self.dry_multiplier > 0 and self.dry_window != 0),
            "top_n_sigma": ("top_n_sigma", self.top_n_sigma > 0),
            "top_k": ("top_k", self.top_k > 0),
            "typical_p": ("typical_p", self.typical_p < 1),
            "top_p": ("top_p", self.top_p < 1),
            "min_p": ("min_p", self.min_p > 0),
            "xtc_probability": ("xtc", self.xtc_probability > 0),
            "dynatemp_range": ("temperature", self.dynatemp_range > 0),
            "temperature": ("temperature", self.temperature not in (0, 1)),
        }
        return {stage: field for field, (stage, active) in asked.items() if active}

    @property
    def needs_history(self) -> bool:
        """Whether a stage reads the tokens so far, so that a draw must wait for the token before it."""
        return self.mirostat > 0 or not self.active.keys().isdisjoint({"penalties", "dry"})


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


# Float32 holds what the stages compute within these: beyond them a logit overflows, and a draw would mean nothing.
_LEAST, _GREATEST = 1e-3, 1e6
_COLDEST = 1e-6

# Field: the least and the greatest value, each with whether it is allowed itself, and the mend.
_SAMPLING_RANGES: dict[str, tuple[float, bool, float, bool, str]] = {
    "dynatemp_range": (0, True, _GREATEST, True, "use 0 (off) up to 1e6"),
    "dynatemp_exponent": (_LEAST, True, 1e3, True, "use 1, or another number from 0.001 to 1000"),
    "top_p": (0, False, 1, True, "use 1 (off) or a share of the mass"),
    "min_p": (0, True, 1, True, "use 0 (off) up to 1"),
    "typical_p": (0, False, 1, True, "use 1 (off) or a share of the mass"),
    "top_n_sigma": (0, True, _GREATEST, True, "use 0 (off) up to 1e6"),
    "min_keep": (1, True, math.inf, False, "use 1 or more"),
    "xtc_probability": (0, True, 1, True, "use 0 (off) up to 1"),
    "xtc_threshold": (0, False, 1, True, "use a probability"),
    "repetition_penalty": (_LEAST, True, 1e3, True, "use 1 (off), or a factor from 0.001 to 1000"),
    "presence_penalty": (-2, True, 2, True, "use -2 to 2"),
    "frequency_penalty": (-2, True, 2, True, "use -2 to 2"),
    "penalty_window": (-1, True, math.inf, False, "use -1 (all), 0 (none) or a number of tokens"),
    "presence_window": (-1, True, math.inf, False, "use -1 (all), 0 (none) or a number of tokens"),
    "frequency_window": (-1, True, math.inf, False, "use -1 (all), 0 (none) or a number of tokens"),
    "dry_multiplier": (0, True, _GREATEST, True, "use 0 (off) up to 1e6"),
    "dry_base": (1, True, _GREATEST, True, "use 1 to 1e6"),
    "dry_allowed_length": (1, True, math.inf, False, "use 1 or more"),
    "dry_window": (-1, True, math.inf, False, "use -1 (all), 0 (none) or a number of tokens"),
    "mirostat": (0, True, 2, True, "use 0 (off), 1 or 2"),
    "mirostat_tau": (0, False, _GREATEST, True, "use a surprise in bits"),
    "mirostat_eta": (0, False, 1, True, "use a learning rate"),
    "seed": (0, True, 2**64, False, "use a whole number from 0"),
}
_REQUEST_RANGES: dict[str, tuple[float, bool, float, bool, str]] = {
    "max_time_ms": (1, True, math.inf, False, "use 1 or more"),
    "min_indent": (0, True, math.inf, False, "use 0 (off) or more"),
    "prompt_logprobs": (0, True, MAX_TOP_LOGPROBS, True, f"use 0 to {MAX_TOP_LOGPROBS}"),
}


def _require(ok: bool, param: str, what: str, mend: str) -> None:
    if not ok:
        raise RequestError(what, mend, param=param)


def _require_ranges(struct: msgspec.Struct, ranges: dict[str, tuple[float, bool, float, bool, str]]) -> None:
    for name, (low, with_low, high, with_high, mend) in ranges.items():
        value = getattr(struct, name)
        if value is None:
            continue
        _require(not math.isnan(value), name, f"{name} is not a number", "give a finite number")
        within = (low <= value if with_low else low < value) and (
            value <= high if with_high else value < high
        )
        span = f"{'[' if with_low else '('}{low}, {high}{']' if with_high else ')'}"
        _require(within, name, f"{name} {value} is outside {span}", mend)


def _require_tokens(param: str, tokens: Iterable[int], vocabulary_size: int) -> None:
    for token in tokens:
        _require(
            0 <= token < vocabulary_size,
            param,
            f"{param} names token {token}, outside the vocabulary of {vocabulary_size}",
            "use the checkpoint's token ids",
        )


def _validate_order(s: Sampling) -> None:
    if isinstance(s.samplers, str):
        _require(s.samplers in PRESETS, "samplers", f"there is no order {s.samplers!r}",
                 f"use one of {', '.join(PRESETS)}, or a list of stages")  # fmt: skip
    for index, stage in enumerate(s.order):
        _require(
            stage in STAGES, "samplers", f"there is no stage {stage!r}", f"use some of {', '.join(STAGES)}"
        )
        _require(stage not in s.order[:index], "samplers", f"{stage} stands twice", "name each stage once")
    for stage, field in s.active.items():
        _require(stage in s.order, field, f"{field} is set, and samplers leaves {stage} out",
                 f"name {stage} in samplers, or leave {field} out")  # fmt: skip
    if s.mirostat:
        _require(s.temperature > 0, "mirostat", "mirostat needs a temperature", "set temperature above 0")
        kept = {"penalties", "dry", "temperature"}
        for stage, field in s.active.items():
            _require(stage in kept, field, f"{field} is set, and mirostat truncates by itself",
                     f"leave {field} or mirostat out")  # fmt: skip
    _require(s.dynatemp_range == 0 or s.temperature > 0, "dynatemp_range",
             "a dynamic temperature needs a temperature", "set temperature above 0")  # fmt: skip


def _validate_sampling(s: Sampling, vocabulary_size: int) -> None:
    finite = 0 <= s.temperature < math.inf
    _require(
        not math.isnan(s.temperature),
        "temperature",
        "temperature is not a finite number",
        "give a finite number",
    )
    what = "negative" if s.temperature < 0 else "not a finite number"
    _require(finite, "temperature", f"temperature {s.temperature} is {what}", "use 0 (greedy) or more")
    _require(
        s.temperature == 0 or _COLDEST <= s.temperature <= _GREATEST,
        "temperature",
        f"temperature {s.temperature} is outside [{_COLDEST}, {_GREATEST}]",
        "use 0 (greedy), or a number in that range",
    )
    _require(s.top_k >= 0, "top_k", f"top_k {s.top_k} is negative", "use 0 (off) or more")
    _require_ranges(s, _SAMPLING_RANGES)
    _validate_order(s)
    _require(all(s.dry_breakers), "dry_breakers", "a breaker is empty", "leave it out, or give it text")
    _require_tokens("logit_bias", s.logit_bias, vocabulary_size)
    for token, bias in s.logit_bias.items():
        _require(
            abs(bias) <= 100,
            "logit_bias",
            f"logit_bias {bias} of token {token} is outside [-100, 100]",
            "use -100 to 100",
        )
    _require_tokens("banned_tokens", s.banned_tokens, vocabulary_size)
    _require_tokens("allowed_tokens", s.allowed_tokens or (), vocabulary_size)
    left = None if s.allowed_tokens is None else set(s.allowed_tokens) - set(s.banned_tokens)
    _require(left != set(), "allowed_tokens", "no token is allowed", "allow at least one that is not banned")


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
    _validate_sampling(request.sampling, vocabulary_size)
    _require(
        request.max_tokens is None or request.max_tokens >= 0,
        "max_tokens",
        f"max_tokens {request.max_tokens} is negative",
        "use 0 or more",
    )
    _require_ranges(request, _REQUEST_RANGES)
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
