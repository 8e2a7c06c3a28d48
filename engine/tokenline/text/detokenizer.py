"""Token ids to text, one token at a time, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Collection

from tokenline.text.tokenizer import Tokenizer


class Detokenizer:
    """Holds back the bytes of an unfinished character; all that it gave out, joined, is `Tokenizer.decode`.

    Works on bytes, so each token costs its own length and no more, however long the text already is. `exact`: every
    token is spelled as a grammar reads it, also the one that opens the text, from whose front a decoder may take a
    space. `marks`: special tokens whose names are text here.
    """

    def __init__(self, tokenizer: Tokenizer, *, exact: bool = False, marks: Collection[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._marks = marks
        self._leading_spaces = 0 if exact else tokenizer.spelling.leading_spaces
        self._opened = exact

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes; "" while a character is unfinished, or for a special token."""
        if self._tokenizer.is_special(token_id):
            if token_id not in self._marks:
                return ""
            return self._decoder.decode(self._tokenizer.token_text(token_id).encode())
        if self._opened:
            spelled = self._tokenizer.token_bytes(token_id)
        else:
            spelled = self._tokenizer.first_token_bytes(token_id)
            self._opened = True
        if self._leading_spaces and spelled:
            kept = spelled.lstrip(b" ")
            removed = min(len(spelled) - len(kept), self._leading_spaces)
            # Text after the spaces, or too many of them, ends the stretch in which they are taken off.
            self._leading_spaces = 0 if removed < len(spelled) else self._leading_spaces - removed
            spelled = spelled[removed:]
        return self._decoder.decode(spelled)

    def flush(self) -> str:
        """What is still held back: an unfinished character becomes one U+FFFD, once."""
        return self._decoder.decode(b"", final=True)
