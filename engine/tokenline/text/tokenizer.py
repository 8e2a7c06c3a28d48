"""Text to token ids and back: one checkpoint's tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import tokenizers

from tokenline.errors import RequestError
from tokenline.text.spelling import Spelling


class Tokenizer:
    """Encodes and spells for one checkpoint; immutable, so any number of threads may share it.

    Special tokens (`<|im_end|>`, `</s>`, ...) steer the model: in text from outside they are text, and only
    `parse_special=True` reads them as tokens. They are never part of the text that comes out.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        eos_token_ids: frozenset[int],
        bos_token_id: int | None,
        add_bos: bool,
    ) -> None:
        serialised = backend.to_str()
        # Two copies, because reading special tokens is a switch on the whole tokenizer, not on a call.
        self._parsing = tokenizers.Tokenizer.from_str(serialised)
        self._plain = tokenizers.Tokenizer.from_str(serialised)
        for copy, as_text in ((self._parsing, False), (self._plain, True)):
            copy.encode_special_tokens = as_text
            copy.no_truncation()
            copy.no_padding()
        added = backend.get_added_tokens_decoder()
        self._added = {token_id: token.content for token_id, token in added.items()}
        self.special_tokens = {token_id: token.content for token_id, token in added.items() if token.special}
        self.eos_token_ids = eos_token_ids
        self.bos_token_id = bos_token_id
        self.add_bos = add_bos and bos_token_id is not None
        self.vocabulary_size = backend.get_vocab_size(with_added_tokens=True)
        self.hash = hashlib.sha256(serialised.encode()).hexdigest()
        self.spelling = Spelling.of(backend)
        self._bytes: dict[int, bytes] = {}

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool | None = None) -> list[int]:
        """Token ids of `text`, the beginning-of-sequence token first, once, where the checkpoint wants one.

        `add_bos=False` leaves it out: a chat template writes its own. Raises RequestError for a lone
        surrogate, which is half a character and has no bytes.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"the text has half a character (a lone surrogate) at position {error.start}",
                "send valid Unicode",
                param="prompt",
            ) from None
        encoding = (self._parsing if parse_special else self._plain).encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if not parse_special and not self.special_tokens.keys().isdisjoint(ids):
            ids = self._respelled(text, encoding)
        if (self.add_bos if add_bos is None else add_bos) and ids[:1] != [self.bos_token_id]:
            ids = [self.bos_token_id, *ids]  # type: ignore[list-item]
        return ids

    def special_spans(self, text: str) -> list[tuple[int, int, int]]:
        """Where special tokens stand in `text`: (start, end, token id), in order, in characters."""
        encoding = self._parsing.encode(text, add_special_tokens=False)
        return [
            (start, end, token_id)
            for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if token_id in self.special_tokens and self.special_tokens[token_id] in text[start:end]
        ]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of `token_ids` as a whole; special tokens left out, bytes of no character as U+FFFD."""
        spelled = b""
        opened = False
        for token_id in token_ids:
            if token_id not in self.special_tokens:
                spelled += self.token_bytes(token_id) if opened else self.first_token_bytes(token_id)
                opened = True
        spaces = self.spelling.leading_spaces
        while spaces and spelled.startswith(b" "):
            spelled, spaces = spelled[1:], spaces - 1
        return spelled.decode("utf-8", errors="replace")

    def token_text(self, token_id: int) -> str:
        """The text of one token alone; a special token shows its name."""
        if token_id in self.special_tokens:
            return self.special_tokens[token_id]
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes that the token adds to a text; none for a special token or an unused id."""
        spelled = self._bytes.get(token_id)
        if spelled is None:
            spelled = self._bytes[token_id] = self._spell(token_id, first=False)
        return spelled

    def first_token_bytes(self, token_id: int) -> bytes:
        """The same for the token that opens a text, where some tokenizers drop the mark of a new word."""
        return (
            self._spell(token_id, first=True)
            if self.spelling.bare_first_token
            else self.token_bytes(token_id)
        )

    def has_token(self, text: str) -> bool:
        """Whether the vocabulary has a token of exactly this name."""
        return self._plain.token_to_id(text) is not None

    def is_special(self, token_id: int) -> bool:
        return token_id in self.special_tokens

    def _spell(self, token_id: int, *, first: bool) -> bytes:
        if token_id in self.special_tokens:
            return b""
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._plain.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        return b"" if token is None else self.spelling.spell(token, first=first)

    def _respelled(self, text: str, encoding: tokenizers.Encoding) -> list[int]:
        """The ids with special tokens spelled out that merges put together from ordinary text."""
        ids: list[int] = []
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            name = self.special_tokens.get(token_id)
            if name is None or text[start:end] != name:
                ids.append(token_id)
                continue
            ids.extend(self._spelled_out(name))
        return ids

    def _spelled_out(self, name: str) -> list[int]:
        """`name` in the smallest tokens of the vocabulary: characters, or bytes where it has none for one."""
        ids: list[int | None] = []
        for piece in self.spelling.pieces(name):
            piece_id = self._plain.token_to_id(piece)
            if piece_id is not None:
                ids.append(piece_id)
            else:
                ids.extend(self._plain.token_to_id(f"<0x{byte:02X}>") for byte in piece.encode())
        return [piece_id for piece_id in ids if piece_id is not None]
