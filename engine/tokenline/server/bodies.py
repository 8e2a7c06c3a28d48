"""The bodies of completions and chat, field by field."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from tokenline.request import LoopDetection
from tokenline.server.conversation import TextPart

PROMPTS: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
        {
            "type": "array",
            "minItems": 1,
            "items": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        },
    ]
}


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool = False


class Loop(msgspec.Struct, forbid_unknown_fields=True):
    """`loop_detection` as an object; `true` is the defaults."""

    max_period: int = LoopDetection().max_period
    repeats: int = LoopDetection().repeats
    min_tokens: int = LoopDetection().min_tokens


class CommonBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields of both endpoints. `null` is the default, which is the engine's own (`tokenline.request`)."""

    model: str | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    # Who the client's own user is: it changes nothing here, but clients send it to every server.
    user: str | None = None
    # Ours, as `tokenline.request` names them.
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    min_keep: int | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    repetition_penalty: float | None = None
    penalty_window: int | None = None
    presence_window: int | None = None
    frequency_window: int | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_window: int | None = None
    dry_breakers: tuple[str, ...] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    banned_tokens: tuple[int, ...] | None = None
    allowed_tokens: tuple[int, ...] | None = None
    mask_eos: bool | None = None
    samplers: str | tuple[str, ...] | None = None
    max_time_ms: int | None = None
    min_indent: int | None = None
    logprobs_mode: Literal["processed", "raw"] | None = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    priority: int | None = None
    loop_detection: bool | Loop | None = None
    return_details: bool | None = None
    json_object: bool | None = None
    json_schema: dict[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None

    @property
    def choices(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(CommonBody, forbid_unknown_fields=True, kw_only=True):
    # A text, token ids, or a list of either; `protocol.prompts_of` has their refusals.
    prompt: Annotated[Any, msgspec.Meta(extra_json_schema=PROMPTS)]
    logprobs: int | None = None
    echo: bool | None = None
    prompt_logprobs: int | None = None
    best_of: Literal[1] | None = None
    suffix: None = None


class Message(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One turn. What an assistant's turn of ours carries may come back as it was."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    refusal: None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class NamedSchema(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A schema as `response_format` carries it. It always holds: `strict` and the descriptions change nothing."""

    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class ChatBody(CommonBody, forbid_unknown_fields=True, kw_only=True):
    messages: list[Message]
    # Nothing is stored, and all else is as these values say: clients send them to every server.
    store: Literal[False] | None = None
    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "default"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    modalities: list[Literal["text"]] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_format: Literal["auto", "none"] | None = None
