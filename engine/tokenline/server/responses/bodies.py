"""The body of /v1/responses, field by field."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class InputText(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="input_text"):
    text: str


class OutputText(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="output_text"):
    """What an earlier answer said, as it was answered."""

    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class ReasoningText(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="reasoning_text"):
    text: str


class MessageItem(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="message"):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[InputText | OutputText]
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    phase: None = None


class CallItem(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="function_call"
):
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class CallOutputItem(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="function_call_output"
):
    call_id: str
    output: str | list[InputText]
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class ReasoningItem(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="reasoning"
):
    id: str | None = None
    summary: list[Any] = []
    content: list[ReasoningText] | None = None
    encrypted_content: None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


Item = MessageItem | CallItem | CallOutputItem | ReasoningItem


class FunctionTool(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    type: Literal["function"]
    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class NamedTool(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    type: Literal["function"]
    name: str


class TextFormat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A schema always holds: `strict` and the descriptions change nothing."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class Text(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    format: TextFormat | None = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_obfuscation: Literal[False] | None = None


class ResponsesBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Nothing is stored: a conversation comes whole, in `input`, and `store` may only say so."""

    model: str
    # A text, or items; `read_items` has their types, as a message may leave its own out.
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    text: Text | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["disabled"] | None = None
    store: Literal[False] | None = None
    background: Literal[False] | None = None
    # Thoughts come in the clear.
    include: list[Literal["reasoning.encrypted_content"]] | None = None
    previous_response_id: None = None
    service_tier: Literal["auto", "default"] | None = None
    # Who asks, and what to cache by: they change nothing here, but clients send them to every server.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
