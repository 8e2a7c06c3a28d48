"""The text side of a checkpoint, as its readers hand it on."""

from __future__ import annotations

from dataclasses import dataclass

from tokenline.text.chat_template import ChatTemplate
from tokenline.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextParts:
    """A checkpoint's tokenizer, and its chat template when it has one."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
