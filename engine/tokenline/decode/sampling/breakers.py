"""DRY's sequence breakers: strings, and the token sequences that spell them in one vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenline.text.tokenizer import Tokenizer

# The first token of a breaker, and what may follow it: () for a token that holds the whole breaker.
Breakers = Mapping[int, Sequence[tuple[int, ...]]]

# As in llama.cpp: a breaker is a mark, not a text, and each token of it is compared at each step.
_LONGEST, _MOST_TOKENS = 40, 20


class BreakerTable:
    """The breakers of one tokenizer, each string looked up in the whole vocabulary once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces: list[bytes] = []
        self._known: dict[str, list[tuple[int, tuple[int, ...]]]] = {}

    def breakers(self, strings: Sequence[str]) -> dict[int, list[tuple[int, ...]]]:
        """Every way in which one of the strings can begin in a token."""
        found: dict[int, list[tuple[int, ...]]] = {}
        for string in strings:
            if string not in self._known:
                self._known[string] = self._spelled(string)
            for head, tail in self._known[string]:
                if tail not in found.setdefault(head, []):
                    found[head].append(tail)
        return found

    def _spelled(self, string: str) -> list[tuple[int, tuple[int, ...]]]:
        tokenizer = self._tokenizer
        if not self._pieces:
            self._pieces = [tokenizer.token_bytes(token) for token in range(tokenizer.vocabulary_size)]
        wanted = string[:_LONGEST].encode()
        # A token that ends with the beginning of the string is its head, and the rest, tokenized, its tail.
        starts = [(wanted[:length], wanted[length:]) for length in range(len(wanted) - 1, 0, -1)]
        tails = {
            rest: tuple(tokenizer.encode(text, add_bos=False)[:_MOST_TOKENS])
            for _, rest in starts
            if (text := _decoded(rest)) is not None
        }
        found: list[tuple[int, tuple[int, ...]]] = []
        for token, piece in enumerate(self._pieces):
            if wanted in piece:
                found.append((token, ()))
            else:
                found += [
                    (token, tails[rest]) for start, rest in starts if rest in tails and piece.endswith(start)
                ]
        return found


def _decoded(rest: bytes) -> str | None:
    try:
        return rest.decode()
    except UnicodeDecodeError:
        return None  # the cut is inside a character
