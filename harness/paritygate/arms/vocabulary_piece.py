"""The text of a token that is spelled as in a vocabulary: in GPT-2's bytes, or with SentencePiece's ▁ for a space."""

from __future__ import annotations


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable Latin-1 stands for itself, the others for 256 onwards, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }


_BYTES = _byte_alphabet()


def text_of_piece(piece: str) -> str:
    """The piece's text; bytes that are no whole character become U+FFFD."""
    if all(char in _BYTES for char in piece):
        return bytes(_BYTES[char] for char in piece).decode("utf-8", errors="replace")
    return piece.replace("\u2581", " ")
