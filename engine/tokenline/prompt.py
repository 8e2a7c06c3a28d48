"""From a request to its prompt: token ids, and where the messages of a conversation end in them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenline.decode.structure import StructureTable
from tokenline.errors import RequestError
from tokenline.request import Request
from tokenline.text.chat_template import ChatPrompt, ChatTemplate
from tokenline.text.tokenizer import Tokenizer
from tokenline.text.tool_format import conversation


def prompt_field(request: Request) -> str:
    """Where a request has its prompt."""
    return "messages" if request.messages is not None else "prompt"


def call_id(prompt: Sequence[int], index: int) -> str:
    """Of a call in the answer to this prompt: the same for the same conversation, streamed or not and on every path;
    another in the next turn."""
    digest = hashlib.sha256(np.asarray([index, *prompt], np.int64).tobytes())
    return f"call_{digest.hexdigest()[:24]}"


@dataclass(frozen=True)
class Prompts:
    """Of one checkpoint; any thread may ask it."""

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    structures: StructureTable
    context_length: int

    def of(self, request: Request) -> ChatPrompt:
        """The whole prompt, as a row starts with it; RequestError for one that is empty or leaves no room."""
        chat = self._whole(request)
        field = prompt_field(request)
        count = len(chat.token_ids)
        if not count:
            raise RequestError("the prompt is empty", "give it at least one token", param=field)
        if count >= self.context_length:
            raise RequestError(
                f"the prompt has {count} tokens, the context {self.context_length}",
                "shorten the prompt: at least one token must fit after it",
                param=field,
            )
        return chat

    def _whole(self, request: Request) -> ChatPrompt:
        if request.prompt_token_ids is not None:
            return ChatPrompt(list(request.prompt_token_ids), [])
        if request.prompt is not None:
            return ChatPrompt(self.tokenizer.encode(request.prompt), [], request.prompt)
        if self.template is None:
            raise RequestError(f"{self.name} has no chat template", "send a prompt instead", param="messages")
        self.structures.check_tools(request)
        messages, fault = conversation(request.messages or ())
        if fault is not None:
            raise RequestError(f"{fault} cannot be read", "send it as it was answered", param=fault)
        variables = dict(request.chat_template_kwargs)
        if request.tools:
            if "tools" in variables:
                raise RequestError("tools are given twice", "leave one out", param="chat_template_kwargs")
            variables["tools"] = list(request.tools)
        return self.template.prompt(self.tokenizer, messages, **variables)
