"""Options that several commands share, and the requests and models that they describe."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenline.errors import RequestError
from tokenline.request import LoopDetection, Request, Sampling

if TYPE_CHECKING:
    from tokenline.client import Model

SAMPLING, ENGINE = "Sampling", "Engine"


class Backend(StrEnum):
    auto = "auto"
    torch = "torch"
    mlx = "mlx"


class Dtype(StrEnum):
    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    quantized = "quantized"


def _option(*names: str, help: str, panel: str | None = None, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **settings)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which checkpoint, and how it is run."""

    model: Annotated[
        str, _option("-m", "--model", help="A Hugging Face directory, a .gguf file, or an alias.")
    ]
    backend: Annotated[Backend, _option("--backend", help="What computes.", panel=ENGINE)] = Backend.auto
    dtype: Annotated[
        Dtype, _option("--dtype", help="Auto is float32 on a CPU, bfloat16 on an accelerator.", panel=ENGINE)
    ] = Dtype.auto
    threads: Annotated[int | None, _option("--threads", help="CPU threads.", panel=ENGINE, min=1)] = None
    context_length: Annotated[
        int | None,
        _option("--context-length", help="At most what the checkpoint allows.", panel=ENGINE, min=1),
    ] = None
    cache_bytes: Annotated[
        int | None, _option("--cache-bytes", help="Bound of the prompt cache.", panel=ENGINE, min=0)
    ] = None

    def load(self, *, parallel: int = 1) -> Model:
        import tokenline  # here: `tokenline --help` needs no engine

        bounds = {
            "threads": self.threads,
            "context_length": self.context_length,
            "cache_bytes": self.cache_bytes,
        }
        return tokenline.load(
            self.model,
            backend=self.backend.value,
            dtype=self.dtype.value,
            parallel=parallel,
            **{name: bound for name, bound in bounds.items() if bound is not None},
        )


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How an answer is drawn and where it ends; the ranges are checked where every request is."""

    max_tokens: Annotated[int | None, _option("-n", "--max-tokens", help="As many as fit, unless given.")] = (
        None
    )
    temperature: Annotated[float, _option("--temp", "--temperature", help="0 is greedy.", panel=SAMPLING)] = (
        Sampling().temperature
    )
    top_k: Annotated[int, _option("--top-k", help="0 is off.", panel=SAMPLING)] = Sampling().top_k
    top_p: Annotated[float, _option("--top-p", help="1 is off.", panel=SAMPLING)] = Sampling().top_p
    min_p: Annotated[float, _option("--min-p", help="0 is off.", panel=SAMPLING)] = Sampling().min_p
    repetition_penalty: Annotated[
        float, _option("--repetition-penalty", help="1 is off.", panel=SAMPLING)
    ] = Sampling().repetition_penalty
    presence_penalty: Annotated[float, _option("--presence-penalty", help="0 is off.", panel=SAMPLING)] = (
        Sampling().presence_penalty
    )
    frequency_penalty: Annotated[float, _option("--frequency-penalty", help="0 is off.", panel=SAMPLING)] = (
        Sampling().frequency_penalty
    )
    penalty_window: Annotated[
        int, _option("--penalty-window", help="Latest tokens that penalties see; -1 all.", panel=SAMPLING)
    ] = Sampling().penalty_window
    logit_bias: Annotated[
        list[str], _option("--logit-bias", help="TOKEN_ID=BIAS; repeat for more.", panel=SAMPLING)
    ] = field(default_factory=list)
    seed: Annotated[int | None, _option("--seed", help="Drawn, unless given.", panel=SAMPLING)] = None
    stop: Annotated[list[str], _option("--stop", help="Ends before this text; repeat for more.")] = field(
        default_factory=list
    )
    logprobs: Annotated[int | None, _option("--logprobs", help="With --json: alternatives per token.")] = None
    ignore_eos: Annotated[bool, _option("--ignore-eos", help="Go on past the end of the answer.")] = False
    loop_detection: Annotated[bool, _option("--loop-detection", help="End an answer that repeats.")] = False
    cache_prompt: Annotated[
        bool, _option("--cache-prompt/--no-cache-prompt", help="Reuse what is computed.", panel=ENGINE)
    ] = True

    def request(self, **prompt: Any) -> Request:
        """The request; `prompt` is one of prompt, prompt_token_ids and messages."""
        sampling = {
            item.name: getattr(self, item.name) for item in fields(self) if item.name in _SAMPLING_FIELDS
        }
        return Request(
            **prompt,
            sampling=Sampling(**{**sampling, "logit_bias": self._biases()}),
            max_tokens=self.max_tokens,
            stop=tuple(self.stop),
            logprobs=self.logprobs,
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
