"""What is answered, field by field: the description of the API is made of these, and its test holds answers to them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class ErrorFields(msgspec.Struct, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str | None


class Error(msgspec.Struct, kw_only=True):
    """OpenAI's envelope."""

    error: ErrorFields


class AnthropicErrorFields(msgspec.Struct, kw_only=True):
    type: str
    message: str


class AnthropicError(msgspec.Struct, kw_only=True):
    """Anthropic's envelope."""

    type: Literal["error"]
    error: AnthropicErrorFields
    request_id: str | None


class CachedTokens(msgspec.Struct, kw_only=True):
    cached_tokens: int


class Usage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Timings(msgspec.Struct, kw_only=True):
    """llama.cpp's: `cache_n` and `prompt_n` are the prompt's tokens that were found and that were computed."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


Finish = Literal["stop", "length", "tool_calls"]


class CompletionChoice(msgspec.Struct, kw_only=True):
    index: int
    text: str
    finish_reason: Finish
    logprobs: dict[str, list[Any]] | None


class Completion(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage
    timings: Timings


class CalledFunction(msgspec.Struct, kw_only=True):
    name: str
    arguments: str


class ToolCall(msgspec.Struct, kw_only=True):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str = ""
    tool_calls: list[ToolCall] = []


class ChatLogprobs(msgspec.Struct, kw_only=True):
    content: list[dict[str, Any]]
    refusal: None


class ChatChoice(msgspec.Struct, kw_only=True):
    index: int
    message: AssistantMessage
    finish_reason: Finish
    logprobs: ChatLogprobs | None


class ChatCompletion(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings


class MessageUsage(msgspec.Struct, kw_only=True):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int


class AnsweredMessage(msgspec.Struct, kw_only=True):
    """Anthropic's message; its blocks are text, thinking and tool_use."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal[
        "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
    ]
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(msgspec.Struct, kw_only=True):
    input_tokens: int


class ResponseUsage(msgspec.Struct, kw_only=True):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class Response(msgspec.Struct, kw_only=True):
    """OpenAI's response; its items are message, reasoning and function_call."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage
    store: Literal[False]
    previous_response_id: None


class Embedding(msgspec.Struct, kw_only=True):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    total_tokens: int


class Embeddings(msgspec.Struct, kw_only=True):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class Piece(msgspec.Struct, kw_only=True):
    id: int
    piece: str | list[int]


class Tokens(msgspec.Struct, kw_only=True):
    tokens: list[int | Piece]


class Content(msgspec.Struct, kw_only=True):
    content: str


class TemplatedPrompt(msgspec.Struct, kw_only=True):
    prompt: str


class ModelCard(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    parent: str | None
    max_model_len: int


class ModelList(msgspec.Struct, kw_only=True):
    object: Literal["list"]
    data: list[ModelCard]


class CacheStats(msgspec.Struct, kw_only=True):
    entries: int
    bytes: int
    limit_bytes: int
    hits: int
    misses: int


class Health(msgspec.Struct, kw_only=True):
    status: Literal["ok"]
    model: str
    running: int
    queued: int
    prompt_cache: CacheStats


class Done(msgspec.Struct, kw_only=True):
    status: Literal["ok"]


class Slot(msgspec.Struct, kw_only=True):
    id: int
    state: Literal["queued", "prefilling", "decoding"]
    prompt_tokens: int
    cached_tokens: int
    prefilled_tokens: int
    generated_tokens: int
    max_tokens: int | None
    priority: int
    lane: str
    seconds: float


class Props(msgspec.Struct, kw_only=True):
    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    chat_template: str
    bos_token: str
    eos_token: str
    modalities: dict[str, bool]
    build_info: str
    manifest: dict[str, Any]
