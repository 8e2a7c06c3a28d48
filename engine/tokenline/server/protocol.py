"""What a client may send, field by field; anything else is a 400 that names the field."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeVar

import msgspec

from tokenline.errors import RequestError
from tokenline.request import LoopDetection, Request, Sampling

MAX_CHOICES = 128
SEEDS = 1 << 64


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
    loop_detection: bool | Loop | None = None
    return_details: bool | None = None

    @property
    def choices(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(CommonBody, forbid_unknown_fields=True, kw_only=True):
    prompt: Any
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
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class TextPart(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class ChatBody(CommonBody, forbid_unknown_fields=True, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None


Body = TypeVar("Body", bound=CommonBody)
_PATH = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_NAMED = re.compile(r"Object (?:contains unknown|missing required) field `(?P<name>[^`]*)`")


def parse(data: bytes, kind: type[Body]) -> Body:
    """The body, or RequestError: not JSON, or which field is wrong and how."""
    try:
        body = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        found = _PATH.fullmatch(str(error))
        what, path = (found["what"], found["path"]) if found else (str(error), None)
        if named := _NAMED.fullmatch(what):
            path = f"{path}.{named['name']}" if path else named["name"]
        name = path or "the body"
        raise RequestError(f"{name}: {what}", "see the API's documentation", param=path) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON ({error})", "send a JSON object") from None
    _require(
        1 <= body.choices <= MAX_CHOICES, "n", f"n {body.choices} is outside 1 to {MAX_CHOICES}", "use fewer"
    )
    _require(body.stream_options is None or bool(body.stream), "stream_options", "stream_options without stream",
             "set stream to true")  # fmt: skip
    return body


def completion_requests(body: CompletionBody) -> list[Request]:
    """One request per choice: every prompt `n` times, in order."""
    prompts = prompts_of(body)
    # An echo is part of the answer, and so are its logprobs.
    of_prompt = body.prompt_logprobs
    if of_prompt is None and body.echo:
        of_prompt = body.logprobs
    total = len(prompts) * body.choices
    _require(total <= MAX_CHOICES, "n", f"{total} choices were asked for", f"ask for {MAX_CHOICES} at most")
    return [
        _request(
            body,
            index,
            logprobs=body.logprobs,
            max_tokens=body.max_tokens,
            prompt_logprobs=of_prompt,
            **prompt,
        )
        for prompt in prompts
        for index in range(body.choices)
    ]


def chat_requests(body: ChatBody) -> list[Request]:
    """One request per choice."""
    _require(bool(body.messages), "messages", "there are no messages", "send at least one")
    _require(body.top_logprobs is None or bool(body.logprobs), "top_logprobs", "top_logprobs without logprobs",
             "set logprobs to true")  # fmt: skip
    limits = {body.max_tokens, body.max_completion_tokens} - {None}
    _require(
        len(limits) < 2, "max_completion_tokens", "max_tokens and max_completion_tokens differ", "send one"
    )
    return [
        _request(
            body,
            index,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            max_tokens=next(iter(limits), None),
            messages=tuple(_message(message) for message in body.messages),
            chat_template_kwargs=body.chat_template_kwargs or {},
        )
        for index in range(body.choices)
    ]


def _request(body: CommonBody, index: int, **fields: Any) -> Request:
    seed = None if body.seed is None or index == 0 else (body.seed + index) % SEEDS
    sampling = {
        **{name: getattr(body, name) for name in Sampling.__struct_fields__},
        "logit_bias": _biases(body.logit_bias),
        "seed": body.seed if seed is None else seed,
    }
    loop: LoopDetection | None = None
    match body.loop_detection:
        case True:
            loop = LoopDetection()
        case Loop() as given:
            loop = LoopDetection(**msgspec.structs.asdict(given))
    names = ("ignore_eos", "cache_prompt", "max_time_ms", "min_indent", "logprobs_mode")
    given_fields = {name: getattr(body, name) for name in names}
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return Request(
        sampling=Sampling(**{name: value for name, value in sampling.items() if value is not None}),
        stop=tuple(stop),
        loop_detection=loop,
        **{name: value for name, value in given_fields.items() if value is not None},
        **fields,
    )


def prompts_of(body: CompletionBody) -> list[dict[str, Any]]:
    """OpenAI's four spellings: a text, token ids, a list of texts, a list of lists of token ids."""
    match prompt := body.prompt:
        case str():
            return [{"prompt": prompt}]
        case [int(), *_]:
            return [{"prompt_token_ids": _token_ids(prompt)}]
        case [str(), *_] if all(isinstance(item, str) for item in prompt):
            return [{"prompt": item} for item in prompt]
        case [list(), *_] if all(isinstance(item, list) for item in prompt):
            return [{"prompt_token_ids": _token_ids(item)} for item in prompt]
        case []:
            raise RequestError("the prompt is empty", "give it at least one token", param="prompt")
    raise RequestError("the prompt has the wrong type", "send a text or a list of token ids", param="prompt")


def _token_ids(ids: list[Any]) -> tuple[int, ...]:
    whole = all(isinstance(token, int) and not isinstance(token, bool) for token in ids)
    _require(whole, "prompt", "a token id is not a whole number", "send a text or a list of token ids")
    return tuple(ids)


def _message(message: Message) -> dict[str, Any]:
    """As chat templates expect it: text in one piece, absent fields absent."""
    content = message.content
    if isinstance(content, list):
        content = "\n".join(part.text for part in content)
    _require(content is not None or bool(message.tool_calls), "messages", f"a {message.role} message has no content",
             "give it content")  # fmt: skip
    fields = {"name": message.name, "tool_calls": message.tool_calls, "tool_call_id": message.tool_call_id}
    return {
        "role": message.role,
        "content": content if content is not None else "",
        **{name: value for name, value in fields.items() if value is not None},
    }


def _biases(given: dict[str, float] | None) -> dict[int, float] | None:
    if given is None:
        return None
    for token in given:
        _require(token.isascii() and token.isdigit() and len(token) < 20, "logit_bias",
                 f"logit_bias names {token[:40]!r}, which is not a token id", "use token ids as keys")  # fmt: skip
    return {int(token): bias for token, bias in given.items()}


def _require(ok: bool, param: str, what: str, mend: str) -> None:
    if not ok:
        raise RequestError(what, mend, param=param)
