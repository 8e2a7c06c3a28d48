"""How a tokenizer spells: the exact bytes that each token adds to the text, read off its decoder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import tokenizers

from tokenline.errors import CheckpointError

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_of_character() -> dict[str, int]:
    """GPT-2's table: printable bytes stand for themselves, the others for code points from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    for offset, byte in enumerate(byte for byte in range(256) if byte not in set(printable)):
        table[chr(256 + offset)] = byte
    return table


BYTE_OF_CHARACTER = _byte_of_character()
CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}


@dataclass(frozen=True)
class Spelling:
    """What a decoder does to a token, as data.

    `byte_level`: each character stands for a byte (GPT-2). `byte_fallback`: a token `<0xE6>` is that byte
    (SentencePiece). `replacements` are made in the token's text. `leading_spaces` is how many spaces are
    taken off the front of a text; `bare_first_token`: a text's first token loses these marks (Metaspace).
    """

    byte_level: bool = False
    byte_fallback: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    leading_spaces: int = 0
    bare_first_token: str = ""

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer) -> Spelling:
        decoder = json.loads(backend.to_str())["decoder"]
        fields: dict[str, Any] = {"replacements": ()}
        for stage in _stages(decoder):
            match stage:
                case {"type": "ByteLevel"}:
                    fields["byte_level"] = True
                case {"type": "ByteFallback"}:
                    fields["byte_fallback"] = True
                case {"type": "Fuse"}:
                    pass
                case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                    fields["replacements"] += ((old, new),)
                case {"type": "Strip", "content": " ", "start": int(start), "stop": 0}:
                    fields["leading_spaces"] = start
                case {"type": "Metaspace", "replacement": str(mark)}:
                    fields["replacements"] += ((mark, " "),)
                    if stage.get("prepend_scheme", "always") != "never":
                        fields["bare_first_token"] = mark
                case _:
                    raise CheckpointError(
                        f"the tokenizer's decoder {stage.get('type', 'none')!r} is not supported",
                        "use a byte-level, byte-fallback or SentencePiece tokenizer",
                    )
        if fields.get("byte_level") and len(fields) > 2:
            raise CheckpointError(
                "the tokenizer mixes a byte-level decoder with others", "use a plain byte-level tokenizer"
            )
        return cls(**fields)

    def spell(self, token: str, *, first: bool = False) -> bytes:
        """The bytes that `token` adds to a text; `first` when it opens the text."""
        if self.byte_level:
            try:
                return bytes([BYTE_OF_CHARACTER[character] for character in token])
            except KeyError:
                return token.encode()
        if self.byte_fallback and (byte := BYTE_TOKEN.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        if first and self.bare_first_token:
            token = token.replace(self.bare_first_token, "")
        for old, new in self.replacements:
            token = token.replace(old, new)
        return token.encode()

    def pieces(self, text: str) -> Iterator[str]:
        """`text` as the smallest tokens that spell it: a byte each, or a character each."""
        if self.byte_level:
            yield from (CHARACTER_OF_BYTE[byte] for byte in text.encode())
        else:
            for old, new in reversed(self.replacements):
                text = text.replace(new, old)
            yield from text


def _stages(decoder: dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    if decoder is None:
        return [{"type": "none"}]
    if decoder["type"] == "Sequence":
        return [stage for inner in decoder["decoders"] for stage in _stages(inner)]
    return [decoder]
