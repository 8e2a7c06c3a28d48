"""A conversation to a prompt: the checkpoint's own Jinja template, rendered in a sandbox."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tokenline.errors import CheckpointError, RequestError
from tokenline.text.chat_guard import ChatGuard
from tokenline.text.tokenizer import Tokenizer

# The ends of later messages are left out: finding an end renders all before it, so the cost grows with the
# square. Counted from the first message, so that a conversation that grows keeps the ends it had.
MAX_MESSAGE_ENDS = 256

# What Python raises inside a template that meets a message it was not written for.
RENDER_ERRORS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation; `message_ends` are the token positions at which a message ends, ascending; `text` is
    what was encoded, "" for a prompt that came as ids."""

    token_ids: list[int]
    message_ends: list[int]
    text: str = ""


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks assistant text for training; for a prompt it is only its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance-wide set

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node | list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


def _environment() -> ImmutableSandboxedEnvironment:
    """The environment that `transformers` renders chat templates in; templates are written against it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str, bos_token: str | None = None, eos_token: str | None = None) -> None:
        self.source = source
        self.hash = hashlib.sha256(source.encode()).hexdigest()
        self._tokens = {
            name: token
            for name, token in (("bos_token", bos_token), ("eos_token", eos_token))
            if token is not None
        }
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            # Whether it reads the tools that it is given.
            self.takes_tools = "tools" in jinja2.meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:
            raise CheckpointError(
                f"the checkpoint's chat template does not compile ({_line(error)})",
                "fetch the checkpoint again",
            ) from None

    def render(
        self, messages: Sequence[dict[str, Any]], /, *, add_generation_prompt: bool = True, **kwargs: Any
    ) -> str:
        """The conversation as text; raises RequestError (`messages`) when the template refuses it."""
        if "messages" in kwargs:
            raise RequestError(
                "the template's own variable 'messages' is set", "leave it out", param="chat_template_kwargs"
            )
        variables = {"tools": None, "documents": None, **self._tokens, **kwargs}
        try:
            return self._template.render(
                variables, messages=list(messages), add_generation_prompt=add_generation_prompt
            )
        except RENDER_ERRORS as error:
            raise RequestError(
                f"the chat template refused the messages ({_line(error)})",
                "check their roles, order and content",
                param="messages",
            ) from None

    def prompt(
        self, tokenizer: Tokenizer, messages: Sequence[dict[str, Any]], /, **kwargs: Any
    ) -> ChatPrompt:
        """The conversation as token ids, the ids that `transformers.apply_chat_template` gives.

        One difference: a special token written inside a message (`<|im_end|>`) is text there, so that nobody
        can end their own turn and speak as somebody else.
        """
        try:
            guard = ChatGuard(tokenizer, self.source, [list(messages), kwargs])
            messages, kwargs = guard.marked(list(messages)), guard.marked(kwargs)
        except RecursionError:
            raise RequestError(
                "the messages are nested too deeply", "send flatter ones", param="messages"
            ) from None
        text = self.render(messages, **kwargs)
        token_ids = guard.encode(text)
        ends = self._message_ends(guard, text, token_ids, messages, kwargs)
        return ChatPrompt(token_ids, ends, guard.unmarked(text))

    def _message_ends(
        self,
        guard: ChatGuard,
        text: str,
        token_ids: list[int],
        messages: Sequence[dict[str, Any]],
        kwargs: dict[str, Any],
    ) -> list[int]:
        ends: list[int] = []
        start = position = 0
        for count in range(1, min(len(messages), MAX_MESSAGE_ENDS) + 1):
            try:
                beginning = self.render(messages[:count], **{**kwargs, "add_generation_prompt": False})
            except RequestError:
                continue  # a template that refuses half a conversation; the whole one passed
            if len(beginning) <= start or not text.startswith(beginning):
                continue
            piece = guard.encode(text[start : len(beginning)])
            if token_ids[position : position + len(piece)] == piece:
                start, position = len(beginning), position + len(piece)
                ends.append(position)
        return ends


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
