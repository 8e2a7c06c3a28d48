"""How a row draws: the sampler's settings, their orders, and what is out of their range."""

from __future__ import annotations

import math

import msgspec

from tokenline.request.bounds import Range, require, require_ranges, require_texts, require_tokens

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


# Float32 holds what the stages compute within these: beyond them a logit overflows, and a draw would mean nothing.
_LEAST, _GREATEST = 1e-3, 1e6
_COLDEST = 1e-6


_SAMPLING_RANGES: dict[str, Range] = {
    "dynatemp_range": (0, True, _GREATEST, True, "use 0 (off) up to 1e6"),
    "dynatemp_exponent": (_LEAST, True, 1e3, True, "use 1, or another number from 0.001 to 1000"),
    "top_p": (0, False, 1, True, "use 1 (off) or a share of the mass"),
    "min_p": (0, True, 1, True, "use 0 (off) up to 1"),
    "typical_p": (0, False, 1, True, "use 1 (off) or a share of the mass"),
    "top_n_sigma": (0, True, _GREATEST, True, "use 0 (off) up to 1e6"),
    "min_keep": (1, True, math.inf, False, "use 1 or more"),
    "xtc_probability": (0, True, 1, True, "use 0 (off) up to 1"),
    "xtc_threshold": (_COLDEST, True, 1, True, "use a probability from 0.000001 on"),
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


def _validate_order(s: Sampling) -> None:
    if isinstance(s.samplers, str):
        require(s.samplers in PRESETS, "samplers", f"there is no order {s.samplers!r}",
                 f"use one of {', '.join(PRESETS)}, or a list of stages")  # fmt: skip
    for index, stage in enumerate(s.order):
        require(
            stage in STAGES, "samplers", f"there is no stage {stage!r}", f"use some of {', '.join(STAGES)}"
        )
        require(stage not in s.order[:index], "samplers", f"{stage} stands twice", "name each stage once")
    for stage, field in s.active.items():
        require(stage in s.order, field, f"{field} is set, and samplers leaves {stage} out",
                 f"name {stage} in samplers, or leave {field} out")  # fmt: skip
    if s.mirostat:
        require(s.temperature > 0, "mirostat", "mirostat needs a temperature", "set temperature above 0")
        kept = {"penalties", "dry", "temperature"}
        for stage, field in s.active.items():
            require(stage in kept, field, f"{field} is set, and mirostat truncates by itself",
                     f"leave {field} or mirostat out")  # fmt: skip
    require(s.dynatemp_range == 0 or s.temperature > 0, "dynatemp_range",
             "a dynamic temperature needs a temperature", "set temperature above 0")  # fmt: skip


def validate_sampling(s: Sampling, vocabulary_size: int | None) -> None:
    finite = 0 <= s.temperature < math.inf
    require(
        not math.isnan(s.temperature),
        "temperature",
        "temperature is not a finite number",
        "give a finite number",
    )
    what = "negative" if s.temperature < 0 else "not a finite number"
    require(finite, "temperature", f"temperature {s.temperature} is {what}", "use 0 (greedy) or more")
    require(
        s.temperature == 0 or _COLDEST <= s.temperature <= _GREATEST,
        "temperature",
        f"temperature {s.temperature} is outside [{_COLDEST}, {_GREATEST}]",
        "use 0 (greedy), or a number in that range",
    )
    require(s.top_k >= 0, "top_k", f"top_k {s.top_k} is negative", "use 0 (off) or more")
    require_ranges(s, _SAMPLING_RANGES)
    _validate_order(s)
    require_texts("dry_breakers", s.dry_breakers)
    require_tokens("logit_bias", s.logit_bias, vocabulary_size)
    for token, bias in s.logit_bias.items():
        require(
            abs(bias) <= 100,
            "logit_bias",
            f"logit_bias {bias} of token {token} is outside [-100, 100]",
            "use -100 to 100",
        )
    require_tokens("banned_tokens", s.banned_tokens, vocabulary_size)
    require_tokens("allowed_tokens", s.allowed_tokens or (), vocabulary_size)
    left = None if s.allowed_tokens is None else set(s.allowed_tokens) - set(s.banned_tokens)
    require(left != set(), "allowed_tokens", "no token is allowed", "allow at least one that is not banned")
