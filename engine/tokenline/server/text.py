"""/tokenize, /detokenize and /apply-template, as llama.cpp's server has them."""

from __future__ import annotations

from typing import Any

import msgspec

from tokenline.errors import RequestError
from tokenline.request.bounds import require_tokens
from tokenline.server.bodies import ChatBody
from tokenline.server.catalogue import Catalogue
from tokenline.server.protocol import chat_requests, spelled


class TokenizeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`add_special` puts the beginning-of-sequence token first where the checkpoint wants one; `parse_special` reads
    the names of special tokens as these tokens."""

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    tokens: list[int]


def tokenize(catalogue: Catalogue, body: TokenizeBody) -> dict[str, Any]:
    """Token ids; with their pieces, each a text, or a list of bytes where it is no whole character."""
    tokenizer = catalogue.model.tokenizer
    try:
        ids = tokenizer.encode(
            body.content, parse_special=body.parse_special, add_bos=None if body.add_special else False
        )
    except RequestError as error:
        raise RequestError(error.what, error.mend, param="content") from None
    if not body.with_pieces:
        return {"tokens": ids}
    return {"tokens": [{"id": token, "piece": _piece(catalogue, token)} for token in ids]}


def detokenize(catalogue: Catalogue, body: DetokenizeBody) -> dict[str, Any]:
    """The text of the tokens, special ones left out, as in an answer."""
    require_tokens("tokens", body.tokens, catalogue.model.vocabulary_size)
    return {"content": catalogue.model.tokenizer.decode(body.tokens)}


def apply_template(catalogue: Catalogue, body: ChatBody) -> dict[str, Any]:
    """The prompt that /v1/chat/completions would make of the same body, as text."""
    catalogue.answering(body.model)
    try:
        [request, *_] = chat_requests(body, {})
        return {"prompt": catalogue.model.prompt(request).text}
    except RequestError as error:
        raise spelled(error, body) from None


def _piece(catalogue: Catalogue, token: int) -> str | list[int]:
    tokenizer = catalogue.model.tokenizer
    if tokenizer.is_special(token):
        return tokenizer.token_text(token)
    data = tokenizer.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
