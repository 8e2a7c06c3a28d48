"""A tokenizer of each kind that checkpoints have, small enough to know every token of."""

from __future__ import annotations

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from tokenline.text.spelling import BYTE_OF_CHARACTER
from tokenline.text.tokenizer import Tokenizer

MARK = "\u2581"


def _tokenizer(backend: tokenizers.Tokenizer) -> Tokenizer:
    backend.add_special_tokens(["<|end|>"])
    backend.add_tokens(["<think é>"])
    return Tokenizer(backend, eos_token_ids=frozenset(), bos_token_id=None, add_bos=False)


def byte_level() -> Tokenizer:
    """Every byte, and some pairs that cut through characters."""
    alphabet = sorted(BYTE_OF_CHARACTER, key=BYTE_OF_CHARACTER.__getitem__)
    pairs = [(alphabet[a], alphabet[b]) for a, b in [(0xE6, 0x97), (0xA5, 0xE6), (0x20, 0xF0), (0x9F, 0x8E)]]
    vocabulary = {token: index for index, token in enumerate([*alphabet, *map("".join, pairs)])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return _tokenizer(backend)


def byte_fallback(strip: bool = True) -> Tokenizer:
    """As Llama 2 has it: characters where there are tokens for them, `<0xE6>` where there are none."""
    tokens = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        MARK,
        MARK * 2,
        MARK + "日",
        "a",
        "é",
        "本" + MARK,
    ]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>")
    )
    stages = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*stages, decoders.Strip(" ", 1, 0)] if strip else stages)
    return _tokenizer(backend)


def metaspace() -> Tokenizer:
    tokens = ["<unk>", MARK, MARK * 2, MARK + "日", "a", "é", "本" + MARK]
    backend = tokenizers.Tokenizer(
        models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[], unk_token="<unk>")
    )
    backend.decoder = decoders.Metaspace()
    return _tokenizer(backend)


KINDS = {
    "byte-level": byte_level(),
    "byte-fallback": byte_fallback(),
    "byte-fallback-unstripped": byte_fallback(strip=False),
    "metaspace": metaspace(),
}
