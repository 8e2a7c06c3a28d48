"""What a caller asks for: one typed request."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from tokenline.errors import RequestError
from tokenline.request.bounds import Range, require, require_ranges, require_texts, require_tokens
from tokenline.request.sampling import Sampling, validate_sampling
from tokenline.request.tools import function_fault, named_tool

MAX_TOP_LOGPROBS = 20
# A priority, either way; what one step of it is worth is the scheduler's to say.
MAX_PRIORITY = 10
CONSTRAINTS = ("json_object", "json_schema", "regex", "choice", "grammar")


def constraints_of(fields: object) -> list[str]:
    """Which of them are given in a request or a body."""
    return [name for name in CONSTRAINTS if getattr(fields, name) not in (None, False)]


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
    past an end of sequence that was drawn; `mask_eos` keeps it from being drawn. Of the requests that wait, one of a
    higher `priority` runs first.

    What the text must be is one of `json_object` (any JSON object), `json_schema`, `regex`, `choice` (one of these
    texts) and `grammar` (Lark, in llguidance's dialect). `tools` are functions in OpenAI's shape, for `messages` only;
    `tool_choice` is "auto" (the model decides), "none", "required", or an object that names one of them.
    `reasoning_format="none"` leaves what a model thinks aloud in the content of its message. `adapter` names one of the
    model's adapters, None its own weights.
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
    priority: int = 0
    json_object: bool = False
    json_schema: dict[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    reasoning_format: Literal["auto", "none"] = "auto"
    adapter: str | None = None

    @property
    def constraint(self) -> str | None:
        """The field that says what the text must be, None where nothing does."""
        return next(iter(constraints_of(self)), None)


_REQUEST_RANGES: dict[str, Range] = {
    "max_time_ms": (1, True, math.inf, False, "use 1 or more"),
    "min_indent": (0, True, math.inf, False, "use 0 (off) or more"),
    "priority": (-MAX_PRIORITY, True, MAX_PRIORITY, True, f"use {-MAX_PRIORITY} to {MAX_PRIORITY}"),
    "prompt_logprobs": (0, True, MAX_TOP_LOGPROBS, True, f"use 0 to {MAX_TOP_LOGPROBS}"),
}


def validate(request: Request, vocabulary_size: int | None) -> None:
    """Raise RequestError, naming the field, for a request that no engine state could make valid; a vocabulary that is
    not known yet (None) bounds nothing."""
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
    require_texts("stop", request.stop)
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
    require_tokens("prompt", request.prompt_token_ids or (), vocabulary_size)
    _validate_constraint(request)
    _validate_tools(request)


def _validate_constraint(request: Request) -> None:
    given = constraints_of(request)
    require(len(given) < 2, given[-1] if given else "", f"{' and '.join(given)} are both given", "give one")
    for name in ("regex", "choice", "grammar"):
        require(getattr(request, name) not in ("", ()), name, f"{name} is empty", "leave it out, or fill it")
    require("" not in (request.choice or ()), "choice", "a choice is empty", "leave it out, or give it text")


def _validate_tools(request: Request) -> None:
    choice = request.tool_choice
    require(
        not request.tools or request.messages is not None,
        "tools",
        "tools are given with a prompt",
        "send messages: the chat template tells the model about its tools",
    )
    names: list[str] = []
    for index, tool in enumerate(request.tools):
        fault = function_fault(tool)
        if fault is not None:
            path, what, mend = fault
            raise RequestError(f"tools[{index}]{path} {what}", mend, param=f"tools[{index}]{path}")
        name = tool["function"]["name"]
        require(
            name not in names, f"tools[{index}].function.name", f"two tools are named {name!r}", "rename one"
        )
        names.append(name)
    if isinstance(choice, dict):
        named = named_tool(choice)
        require(named is not None, "tool_choice", "tool_choice names no function",
                'write {"type": "function", "function": {"name": …}}')  # fmt: skip
        require(named in names, "tool_choice", f"tool_choice names {named!r}, which is none of the tools",
                f"use one of {', '.join(names)}" if names else "give tools")  # fmt: skip
    require(
        choice != "required" or bool(names),
        "tool_choice",
        "a tool is required and none is given",
        "give tools",
    )
    forced = choice == "required" or isinstance(choice, dict)
    if forced and request.constraint is not None:
        raise RequestError(
            f"tool_choice wants a call, {request.constraint} an answer",
            "leave one of them out",
            param="tool_choice",
        )
    strict = choice != "none" and any(tool["function"].get("strict") for tool in request.tools)
    held = request.constraint or ("tool_choice" if forced else "tools" if strict else None)
    require(
        held is None or not request.ignore_eos,
        "ignore_eos",
        f"ignore_eos goes on past the end, {held} ends there",
        "leave one of them out",
    )
