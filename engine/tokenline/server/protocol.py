"""Requests of completions and chat, out of their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tokenline.errors import RequestError
from tokenline.request import CONSTRAINTS, LoopDetection, Request, Sampling, constraints_of
from tokenline.request.bounds import require
from tokenline.server.bodies import ChatBody, CommonBody, CompletionBody, Loop, Message
from tokenline.server.conversation import text_of, turn
from tokenline.server.drawn_request import request_from

MAX_CHOICES = 128
SEEDS = 1 << 64


def check_common(body: CommonBody) -> None:
    """What no field's type says."""
    n = body.choices
    require(1 <= n <= MAX_CHOICES, "n", f"n {n} is outside 1 to {MAX_CHOICES}", f"use 1 to {MAX_CHOICES}")
    require(body.stream_options is None or bool(body.stream), "stream_options", "stream_options without stream",
            "set stream to true")  # fmt: skip


def completion_requests(body: CompletionBody, defaults: Mapping[str, Any]) -> list[Request]:
    """One request per choice: every prompt `n` times, in order."""
    check_common(body)
    prompts = prompts_of(body.prompt)
    # An echo is part of the answer, and so are its logprobs.
    of_prompt = body.prompt_logprobs
    if of_prompt is None and body.echo:
        of_prompt = body.logprobs
    total = len(prompts) * body.choices
    require(total <= MAX_CHOICES, "n", f"{total} choices were asked for", f"ask for {MAX_CHOICES} at most")
    return [
        _request(
            body,
            index,
            defaults,
            logprobs=body.logprobs,
            max_tokens=body.max_tokens,
            prompt_logprobs=of_prompt,
            **prompt,
        )
        for prompt in prompts
        for index in range(body.choices)
    ]


def chat_requests(body: ChatBody, defaults: Mapping[str, Any]) -> list[Request]:
    """One request per choice."""
    check_common(body)
    require(bool(body.messages), "messages", "there are no messages", "send at least one")
    require(body.top_logprobs is None or bool(body.logprobs), "top_logprobs", "top_logprobs without logprobs",
            "set logprobs to true")  # fmt: skip
    limits = {body.max_tokens, body.max_completion_tokens} - {None}
    require(
        len(limits) < 2, "max_completion_tokens", "max_tokens and max_completion_tokens differ", "send one"
    )
    require(body.tools != (), "tools", "tools is empty", "leave it out, or give at least one")
    names = ("tools", "tool_choice", "parallel_tool_calls", "reasoning_format")
    given = {name: value for name in names if (value := getattr(body, name)) is not None}
    return [
        _request(
            body,
            index,
            defaults,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            max_tokens=next(iter(limits), None),
            messages=tuple(_message(message) for message in body.messages),
            chat_template_kwargs=body.chat_template_kwargs or {},
            **_response_format(body),
            **given,
        )
        for index in range(body.choices)
    ]


def spelled(error: RequestError, body: CommonBody) -> RequestError:
    """An error of a request under the name that the client gave its field."""
    if error.param == "json_schema" and body.json_schema is None:  # it came as `response_format`
        return type(error)(error.what, error.mend, param="response_format")
    return error


def _response_format(body: ChatBody) -> dict[str, Any]:
    """OpenAI's spelling of `json_object` and `json_schema`."""
    form = body.response_format
    if form is None or form.type == "text":
        return {}
    if given := constraints_of(body):
        raise RequestError(
            f"response_format and {given[0]} are both given", "give one", param="response_format"
        )
    if form.type == "json_object":
        return {"json_object": True}
    schema = None if form.json_schema is None else form.json_schema.schema
    require(schema is not None, "response_format.json_schema", "response_format has no schema",
            'write {"type": "json_schema", "json_schema": {"name": …, "schema": {…}}}')  # fmt: skip
    return {"json_schema": schema}


def _request(body: CommonBody, index: int, defaults: Mapping[str, Any], **fields: Any) -> Request:
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
    names = (
        "ignore_eos",
        "cache_prompt",
        "priority",
        "max_time_ms",
        "min_indent",
        "logprobs_mode",
        *CONSTRAINTS,
    )
    others = {name: getattr(body, name) for name in names}
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return request_from(
        {**sampling, **others, "stop": tuple(stop), "loop_detection": loop, **fields}, defaults
    )


def prompts_of(given: Any, field: str = "prompt") -> list[dict[str, Any]]:
    """OpenAI's four spellings: a text, token ids, a list of texts, a list of lists of token ids."""
    match given:
        case str():
            return [{"prompt": given}]
        case [int(), *_]:
            return [{"prompt_token_ids": _token_ids(given, field)}]
        case [str(), *_] if all(isinstance(item, str) for item in given):
            return [{"prompt": item} for item in given]
        case [list(), *_] if all(isinstance(item, list) for item in given):
            return [{"prompt_token_ids": _token_ids(item, field)} for item in given]
        case []:
            raise RequestError(f"the {field} is empty", "give it at least one token", param=field)
    raise RequestError(f"the {field} has the wrong type", "send a text or a list of token ids", param=field)


def _token_ids(ids: list[Any], field: str) -> tuple[int, ...]:
    whole = all(isinstance(token, int) and not isinstance(token, bool) for token in ids)
    require(whole, field, "a token id is not a whole number", "send a text or a list of token ids")
    return tuple(ids)


def _message(message: Message) -> dict[str, Any]:
    """As chat templates expect it: text in one piece, absent fields absent."""
    require(message.content is not None or bool(message.tool_calls), "messages",
            f"a {message.role} message has no content", "give it content")  # fmt: skip
    names = ("name", "reasoning_content", "tool_calls", "tool_call_id")
    return turn(message.role, text_of(message.content), **{name: getattr(message, name) for name in names})


def _biases(given: dict[str, float] | None) -> dict[int, float] | None:
    if given is None:
        return None
    for token in given:
        require(token.isascii() and token.isdigit() and len(token) < 20, "logit_bias",
                f"logit_bias names {token[:40]!r}, which is not a token id", "use token ids as keys")  # fmt: skip
    return {int(token): bias for token, bias in given.items()}
