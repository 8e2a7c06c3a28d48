"""Grammars that a row's text must follow: which tokens may come next, by llguidance."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenline.errors import BackendError
from tokenline.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance

# Compiled grammars that are kept: a service asks for the same few schemas again and again.
KEPT = 64


class Grammar:
    """How far one row has come in its grammar. It follows the bytes that its tokens spell, and nothing else."""

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary_size: int, width: int) -> None:
        self._matcher = matcher
        self._vocabulary_size = vocabulary_size
        self._words = np.zeros((width + 31) // 32, np.int32)

    @property
    def error(self) -> str | None:
        """What llguidance gave up for (a limit on its work), None while it has not."""
        return _line(self._matcher.get_error()) if self._matcher.is_error() else None

    @property
    def complete(self) -> bool:
        """Whether nothing can follow what there is."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def accepts(self) -> bool:
        """Whether what there is may end here."""
        return self._matcher.is_accepting()

    def allowed(self) -> np.ndarray:
        """Which tokens may come next, bool [vocabulary]: none in a state of error."""
        if not self._matcher.is_error():
            self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        if self._matcher.is_error():
            return np.zeros(self._vocabulary_size, bool)
        bits = np.unpackbits(self._words.view(np.uint8), count=self._vocabulary_size, bitorder="little")
        return bits.view(bool)

    def advance(self, token: int) -> None:
        """Take a token; one that is not allowed is an error from here on."""
        self._matcher.consume_token(token)

    def rewind(self, count: int) -> None:
        """Take back the last `count` tokens, exactly; ValueError where there were not so many."""
        if count and not self._matcher.rollback(count):
            raise ValueError(f"the grammar cannot go back by {count} tokens")


class GrammarTable:
    """Compiles grammars for one checkpoint; any thread may ask it.

    A grammar is written as llguidance's JSON: a list of Lark grammars and JSON schemas, of which the first is the
    start.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary_size = vocabulary_size
        self._lock = threading.Lock()
        self._vocabulary: llguidance.LLTokenizer | None = None
        self._compiled: OrderedDict[str, llguidance.LLMatcher] = OrderedDict()

    @property
    def _width(self) -> int:
        # llguidance needs an end of sequence: a checkpoint that has none gets an id that no logit stands for.
        return self._vocabulary_size + (not self._tokenizer.eos_token_ids)

    def fault(self, source: str) -> str | None:
        """Why the grammar cannot be compiled, in one line; None where it can. It is not kept."""
        with self._lock:
            matcher = self._compile(source)
        return _line(matcher.get_error()) if matcher.is_error() else None

    def open(self, source: str) -> Grammar:
        """The grammar at its start; ValueError for one that has a fault."""
        matcher = self._matcher(source)
        if matcher.is_error():
            raise ValueError(_line(matcher.get_error()))
        return Grammar(matcher.deep_copy(), self._vocabulary_size, self._width)

    def _matcher(self, source: str) -> llguidance.LLMatcher:
        with self._lock:
            if source not in self._compiled:
                self._compiled[source] = self._compile(source)
            self._compiled.move_to_end(source)
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
            return self._compiled[source]

    def _compile(self, source: str) -> llguidance.LLMatcher:
        """Under the lock."""
        library = _library()
        if self._vocabulary is None:
            self._vocabulary = self._spelled(library)
        limits = library.LLParserLimits(verbose_errors=False)
        return library.LLMatcher(self._vocabulary, source, log_level=0, limits=limits)

    def _spelled(self, library: Any) -> llguidance.LLTokenizer:
        ends = sorted(self._tokenizer.eos_token_ids) or [self._vocabulary_size]
        names = {**self._tokenizer.special_tokens}
        if not self._tokenizer.eos_token_ids:
            names[self._vocabulary_size] = "<end>"
        vocabulary = _Vocabulary(self._tokenizer, names, ends[0], self._width)
        return library.LLTokenizer(library.TokenizerWrapper(vocabulary), eos_token=ends)


class _Vocabulary:
    """What llguidance reads of a tokenizer: the bytes of each token; of a special one, which is no text, its name."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, names: dict[int, str], end: int, width: int) -> None:
        self.eos_token_id = end
        self.special_token_ids = sorted(token for token in names if token < width)
        self.tokens = [
            names[token].encode() if token in names else tokenizer.token_bytes(token)
            for token in range(width)
        ]
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_bos=False)


def _library() -> Any:
    """llguidance; here, because an engine without it does all but this."""
    try:
        import llguidance
    except ImportError:
        raise BackendError(
            "grammars need llguidance, which is not installed", "pip install llguidance"
        ) from None
    return llguidance


def _line(message: str) -> str:
    """llguidance's message without its drawing of the place: what is wrong, and where it says where."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    named = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    first = lines[0].removesuffix(": regex parse error:") if lines else "no reason given"
    if not named:
        return first
    return named[0] if first.startswith("regex parse error") else f"{first}: {named[0]}"
