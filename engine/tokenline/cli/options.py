"""Options that several commands share, and the requests that they describe."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from tokenline.errors import RequestError
from tokenline.request import PRESETS, STAGES, LoopDetection, Request, Sampling

SAMPLING, ENGINE = "Sampling", "Engine"
_DEFAULT = Sampling()


class LogprobsMode(StrEnum):
    processed = "processed"
    raw = "raw"


def _option(*names: str, help: str, panel: str | None = None, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **settings)


def _sampling(*names: str, help: str) -> Any:
    return _option(*names, help=help, panel=SAMPLING)


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How an answer is drawn and where it ends; the ranges are checked where every request is."""

    max_tokens: Annotated[int | None, _option("-n", "--max-tokens", help="As many as fit, unless given.")] = (
        None
    )
    temperature: Annotated[float, _sampling("--temp", "--temperature", help="0 is greedy.")] = (
        _DEFAULT.temperature
    )
    dynatemp_range: Annotated[float, _sampling("--dynatemp-range", help="Around it; 0 is off.")] = (
        _DEFAULT.dynatemp_range
    )
    dynatemp_exponent: Annotated[float, _sampling("--dynatemp-exponent", help="Of the entropy.")] = (
        _DEFAULT.dynatemp_exponent
    )
    top_k: Annotated[int, _sampling("--top-k", help="0 is off.")] = _DEFAULT.top_k
    top_p: Annotated[float, _sampling("--top-p", help="1 is off.")] = _DEFAULT.top_p
    min_p: Annotated[float, _sampling("--min-p", help="0 is off.")] = _DEFAULT.min_p
    typical_p: Annotated[float, _sampling("--typical-p", help="1 is off.")] = _DEFAULT.typical_p
    top_n_sigma: Annotated[float, _sampling("--top-n-sigma", help="0 is off.")] = _DEFAULT.top_n_sigma
    min_keep: Annotated[int, _sampling("--min-keep", help="What truncation leaves at least.")] = (
        _DEFAULT.min_keep
    )
    xtc_probability: Annotated[float, _sampling("--xtc-probability", help="0 is off.")] = (
        _DEFAULT.xtc_probability
    )
    xtc_threshold: Annotated[float, _sampling("--xtc-threshold", help="What is a top choice.")] = (
        _DEFAULT.xtc_threshold
    )
    repetition_penalty: Annotated[float, _sampling("--repetition-penalty", help="1 is off.")] = (
        _DEFAULT.repetition_penalty
    )
    presence_penalty: Annotated[float, _sampling("--presence-penalty", help="0 is off.")] = (
        _DEFAULT.presence_penalty
    )
    frequency_penalty: Annotated[float, _sampling("--frequency-penalty", help="0 is off.")] = (
        _DEFAULT.frequency_penalty
    )
    penalty_window: Annotated[
        int, _sampling("--penalty-window", help="Latest tokens that penalties see; -1 all.")
    ] = _DEFAULT.penalty_window
    presence_window: Annotated[
        int | None, _sampling("--presence-window", help="The penalty window, unless given.")
    ] = None
    frequency_window: Annotated[
        int | None, _sampling("--frequency-window", help="The penalty window, unless given.")
    ] = None
    dry_multiplier: Annotated[float, _sampling("--dry-multiplier", help="0 is off.")] = (
        _DEFAULT.dry_multiplier
    )
    dry_base: Annotated[float, _sampling("--dry-base", help="Growth per repeated token.")] = _DEFAULT.dry_base
    dry_allowed_length: Annotated[int, _sampling("--dry-allowed-length", help="Repeated for free.")] = (
        _DEFAULT.dry_allowed_length
    )
    dry_window: Annotated[int, _sampling("--dry-window", help="Latest tokens that DRY sees; -1 all.")] = (
        _DEFAULT.dry_window
    )
    dry_breaker: Annotated[
        list[str] | None, _sampling("--dry-breaker", help='Ends a repetition; repeat for more, "" for none.')
    ] = None
    mirostat: Annotated[int, _sampling("--mirostat", help="Version 1 or 2; 0 is off.")] = _DEFAULT.mirostat
    mirostat_tau: Annotated[float, _sampling("--mirostat-tau", help="Its target, in bits.")] = (
        _DEFAULT.mirostat_tau
    )
    mirostat_eta: Annotated[float, _sampling("--mirostat-eta", help="Its learning rate.")] = (
        _DEFAULT.mirostat_eta
    )
    logit_bias: Annotated[list[str], _sampling("--logit-bias", help="TOKEN_ID=BIAS; repeat for more.")] = (
        field(default_factory=list)
    )
    banned_tokens: Annotated[str, _sampling("--banned-tokens", help="Token ids: 1,2,3.")] = ""
    allowed_tokens: Annotated[
        str | None, _sampling("--allowed-tokens", help="Only these: token ids, 1,2,3.")
    ] = None
    mask_eos: Annotated[bool, _sampling("--mask-eos", help="Never draw the end of the answer.")] = False
    samplers: Annotated[
        str, _sampling("--samplers", help=f"{', '.join(PRESETS)}, or stages in order: top_k,top_p,….")
    ] = "llama.cpp"
    seed: Annotated[int | None, _sampling("--seed", help="Drawn, unless given.")] = None
    stop: Annotated[list[str], _option("--stop", help="Ends before this text; repeat for more.")] = field(
        default_factory=list
    )
    max_time_ms: Annotated[
        int | None, _option("--max-time-ms", help="From the first token on; no bound, unless given.")
    ] = None
    min_indent: Annotated[
        int, _option("--min-indent", help="Ends before a line that is indented less; 0 is off.")
    ] = 0
    logprobs: Annotated[int | None, _option("--logprobs", help="With --json: alternatives per token.")] = None
    logprobs_mode: Annotated[
        LogprobsMode, _option("--logprobs-mode", help="After the sampler's stages, or the model's own.")
    ] = LogprobsMode.processed
    prompt_logprobs: Annotated[
        int | None, _option("--prompt-logprobs", help="With --json: alternatives per token of the prompt.")
    ] = None
    ignore_eos: Annotated[bool, _option("--ignore-eos", help="Go on past an end that was drawn.")] = False
    loop_detection: Annotated[bool, _option("--loop-detection", help="End an answer that repeats.")] = False
    cache_prompt: Annotated[
        bool, _option("--cache-prompt/--no-cache-prompt", help="Reuse what is computed.", panel=ENGINE)
    ] = True

    def request(self, **others: Any) -> Request:
        """The request; `others` are its prompt (prompt, prompt_token_ids or messages) and what else is asked."""
        sampling = {
            item.name: getattr(self, item.name) for item in fields(self) if item.name in _SAMPLING_FIELDS
        }
        lists: dict[str, Any] = {
            "logit_bias": self._biases(),
            "banned_tokens": parsed_ids("--banned-tokens", self.banned_tokens, "banned_tokens"),
            "allowed_tokens": None,
        }
        if self.allowed_tokens is not None:
            lists["allowed_tokens"] = parsed_ids("--allowed-tokens", self.allowed_tokens, "allowed_tokens")
        if self.dry_breaker is not None:
            lists["dry_breakers"] = tuple(breaker for breaker in self.dry_breaker if breaker)
        if self.samplers not in PRESETS and ("," in self.samplers or self.samplers in STAGES):
            lists["samplers"] = tuple(stage.strip() for stage in self.samplers.split(","))
        return Request(
            **others,
            sampling=Sampling(**{**sampling, **lists}),
            max_tokens=self.max_tokens,
            max_time_ms=self.max_time_ms,
            min_indent=self.min_indent,
            stop=tuple(self.stop),
            logprobs=self.logprobs,
            logprobs_mode=self.logprobs_mode.value,
            prompt_logprobs=self.prompt_logprobs,
            ignore_eos=self.ignore_eos,
            loop_detection=LoopDetection() if self.loop_detection else None,
            cache_prompt=self.cache_prompt,
        )

    def _biases(self) -> dict[int, float]:
        biases = {}
        for given in self.logit_bias:
            token, _, bias = given.partition("=")
            try:
                biases[int(token)] = float(bias)
            except ValueError:
                raise RequestError(
                    f"--logit-bias {given!r} is not TOKEN_ID=BIAS",
                    "write it like 42=-100",
                    param="logit_bias",
                ) from None
        return biases


_SAMPLING_FIELDS = frozenset(Sampling.__struct_fields__)


def parsed_ids(option: str, text: str, param: str) -> tuple[int, ...]:
    """Token ids written with commas."""
    try:
        return tuple(int(item) for item in text.split(",") if item.strip())
    except ValueError:
        raise RequestError(
            f"{option} {text!r} is not a list of token ids", "write it like 1,2,3", param=param
        ) from None


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parsed_bytes(option: str, text: str) -> int:
    """A size in bytes, or in K, M, G or T: powers of 1024."""
    number, unit = text[:-1], text[-1:].upper()
    if unit.isdigit():
        number, unit = text, ""
    if unit not in _UNITS or not (number.isascii() and number.isdigit()):
        raise RequestError(f"{option} {text!r} is not a size", "write it like 512M or 2G")
    return int(number) * _UNITS[unit]


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the dataclasses above: typer is shown their fields, the command gets them filled in."""
    hints = typing.get_type_hints(command, include_extras=True)
    plain: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            plain += _parameters(hints[name])
        else:
            plain.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        filled = {
            name: group(**{item.name: given.pop(item.name) for item in fields(group)})
            for name, group in groups.items()
        }
        command(**filled, **given)

    flat.__signature__ = inspect.Signature(plain)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in plain}
    del flat.__wrapped__  # type: ignore[attr-defined]  # typer would look through it at the original
    return flat


def _parameters(group: type) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    parameters = []
    for item in fields(group):
        default = item.default
        if item.default_factory is not MISSING:
            default = item.default_factory()
        parameters.append(
            inspect.Parameter(
                item.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is MISSING else default,
                annotation=hints[item.name],
            )
        )
    return parameters
