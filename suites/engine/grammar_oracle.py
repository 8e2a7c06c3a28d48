"""llguidance's own word on a whole text, through a tokenizer that is not ours."""

from __future__ import annotations

import llguidance


class Bytes:
    """Another tokenizer than ours for the same text: a token is a byte."""

    eos_token_id, bos_token_id = 256, None
    tokens = [*(bytes([byte]) for byte in range(256)), b"<end>"]  # noqa: RUF012 - never changed
    special_token_ids = [256]  # noqa: RUF012

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


BYTES = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))


def accepts(source: str, text: bytes) -> bool:
    """llguidance's own word on the whole, byte by byte."""
    matcher = llguidance.LLMatcher(BYTES, source, log_level=0)
    return matcher.consume_tokens(list(text)) and matcher.is_accepting()


def begins(source: str, text: bytes) -> bool:
    """Whether something that is accepted begins so."""
    return llguidance.LLMatcher(BYTES, source, log_level=0).consume_tokens(list(text))
