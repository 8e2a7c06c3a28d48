"""The tokenizer and chat template that a .gguf file describes in its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tokenline.checkpoint.gguf_words import BEGINS, CUTS, WORDS_WHOLE
from tokenline.checkpoint.parts import TextParts
from tokenline.errors import CheckpointError
from tokenline.text.chat_template import ChatTemplate
from tokenline.text.tokenizer import Tokenizer as TextTokenizer

PREFIX = "tokenizer.ggml."
WORD_MARK = "\u2581"
FETCH_AGAIN = "fetch or convert the checkpoint again"


class TokenType(IntEnum):
    """What a token is for (`LLAMA_TOKEN_TYPE_*`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def gguf_text_parts(metadata: Mapping[str, Any]) -> TextParts:
    """Tokenizer and template from GGUF metadata (key to value); raises CheckpointError naming what is odd."""
    tokens: Sequence[str] = _field(metadata, "tokens", list)
    types: Sequence[int] = metadata.get(PREFIX + "token_type") or [TokenType.NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise CheckpointError(
            f"the vocabulary has {len(tokens)} tokens but {len(types)} token types", FETCH_AGAIN
        )
    kind = _field(metadata, "model", str)
    match kind:
        case "gpt2":
            backend = _byte_level(metadata, tokens)
        case "llama":
            backend = _sentencepiece(metadata, tokens, types)
        case _:
            raise CheckpointError(
                f"the tokenizer kind {kind!r} is not supported",
                "use a checkpoint with a gpt2 or llama tokenizer",
            )
    for special, of_type in ((True, TokenType.CONTROL), (False, TokenType.USER_DEFINED)):
        added = [
            AddedToken(token, normalized=False, special=special)
            for token, token_type in zip(tokens, types, strict=True)
            if token_type == of_type and token
        ]
        (backend.add_special_tokens if special else backend.add_tokens)(added)
    bos, eos = _token_id(metadata, "bos", tokens), _token_id(metadata, "eos", tokens)
    ends = {eos, _token_id(metadata, "eot", tokens), _token_id(metadata, "eom", tokens)} - {None}
    add_bos = metadata.get(PREFIX + "add_bos_token", kind == "llama" or _pre(metadata) in BEGINS)
    tokenizer = TextTokenizer(
        backend,
        eos_token_ids=frozenset(end for end in ends if end is not None),
        bos_token_id=bos,
        add_bos=bool(add_bos),
    )
    source = metadata.get("tokenizer.chat_template")
    if not source:
        return TextParts(tokenizer, None)
    names = [None if token_id is None else tokens[token_id] for token_id in (bos, eos)]
    return TextParts(tokenizer, ChatTemplate(source, *names))


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str]) -> Tokenizer:
    pre = _pre(metadata)
    if pre not in CUTS:
        raise CheckpointError(
            f"the pre-tokenizer {pre!r} is not supported", f"use one of {', '.join(sorted(CUTS))}"
        )
    merges = [tuple(merge.split(" ")) for merge in _field(metadata, "merges", list)]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    for merge in merges:
        if len(merge) != 2 or not vocabulary.keys() >= {*merge, "".join(merge)}:
            raise CheckpointError(
                f"the merge {' '.join(merge)!r} joins no two tokens into a third", FETCH_AGAIN
            )
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre in WORDS_WHOLE))
    cuts = [pre_tokenizers.Split(Regex(cut), behavior="isolated") for cut in CUTS[pre]]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, byte_level])
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]) -> Tokenizer:
    scores = _field(metadata, "scores", list)
    if len(scores) != len(tokens):
        raise CheckpointError(
            f"the vocabulary has {len(tokens)} tokens but {len(scores)} scores", FETCH_AGAIN
        )
    unknown = _token_id(metadata, "unknown", tokens)
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    backend = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges_of_scores(tokens, types, scores, vocabulary),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaced = bool(metadata.get(PREFIX + "add_space_prefix", True))
    mark = normalizers.Replace(" ", WORD_MARK)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(WORD_MARK), mark] if spaced else [mark])
    decoding = [decoders.Replace(WORD_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*decoding, decoders.Strip(" ", 1, 0)] if spaced else decoding)
    return backend


def _merges_of_scores(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float], vocabulary: Mapping[str, int]
) -> list[tuple[str, str]]:
    """SentencePiece joins the neighbours whose joint token scores best; the same as a ranked list of merges.

    Only ordinary tokens are joined to, so that no ordinary text ever becomes a special token.
    """
    ranked = sorted(
        (token_id for token_id, kind in enumerate(types) if kind == TokenType.NORMAL),
        key=lambda token_id: (-scores[token_id], token_id),
    )
    return [
        (token[:cut], token[cut:])
        for token in (tokens[token_id] for token_id in ranked)
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]


def _pre(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get(PREFIX + "pre", "default"))


def _field(metadata: Mapping[str, Any], name: str, kind: type) -> Any:
    value = metadata.get(PREFIX + name)
    if not isinstance(value, kind) or not value:
        raise CheckpointError(f"the metadata has no {PREFIX + name}", FETCH_AGAIN)
    return value


def _token_id(metadata: Mapping[str, Any], role: str, tokens: Sequence[str]) -> int | None:
    token_id = metadata.get(f"{PREFIX}{role}_token_id")
    if token_id is not None and not 0 <= token_id < len(tokens):
        raise CheckpointError(
            f"the {role} token {token_id} is outside the vocabulary of {len(tokens)}", FETCH_AGAIN
        )
    return token_id
