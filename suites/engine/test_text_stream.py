"""Tokens to text that is sent: the same text however it was cut into tokens and however the tokens arrive, up to the
first stop string, for every kind of tokenizer.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_tokenizers import KINDS, MARK

from tokenline.decode.finish import FinishCause
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.decode.sampling import RowParameters
from tokenline.request import Request
from tokenline.result import result_of
from tokenline.row import Event, Row, Taken
from tokenline.text.text_stream import TextStream
from tokenline.text.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
# Characters of one to four bytes, and the space that SentencePiece writes as a mark; half of them are no token of the
# byte-fallback vocabulary and fall to bytes.
CHARACTERS = "a é日本🎉"
TEXTS = st.text(CHARACTERS, max_size=24)
STOPS = st.lists(st.text(CHARACTERS, min_size=1, max_size=4), max_size=6)
SPELLS = [kind for kind in KINDS if kind != "metaspace"]  # which has no bytes to spell every text with


def spellings(tokenizer: Tokenizer) -> dict[bytes, int]:
    return {
        spelled: token
        for token in reversed(range(tokenizer.vocabulary_size))
        if (spelled := tokenizer.token_bytes(token)) and MARK.encode() not in spelled
    }


SPELLINGS = {kind: spellings(KINDS[kind]) for kind in SPELLS}
LONGEST = max(len(spelled) for table in SPELLINGS.values() for spelled in table)


def tokens_of(data: st.DataObject, kind: str, text: bytes) -> list[int]:
    """One of the ways to write these bytes in tokens: also through the middle of characters."""
    tokens, table = [], SPELLINGS[kind]
    while text:
        ways = [length for length in range(1, LONGEST + 1) if len(text) >= length and text[:length] in table]
        length = data.draw(st.sampled_from(ways))
        tokens.append(table[text[:length]])
        text = text[length:]
    return tokens


def until_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """By definition: the match that ends first, and of those the longest."""
    for end in range(1, len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, found))], True
    return text, False


def streamed(
    tokenizer: Tokenizer, tokens: list[int], stops: list[str], **spelled: bool
) -> tuple[list[str], bool]:
    stream = TextStream(tokenizer, stops, **spelled)
    sent, stopped = [], False
    for token in tokens:
        text, stopped = stream.push(token)
        sent.append(text)
        if stopped:
            break
    sent.append(stream.finish())
    assert stream.finish() == "", "what was held back is flushed once"
    return sent, stopped


@pytest.mark.parametrize("kind", SPELLS)
@given(data=st.data(), text=TEXTS, stops=STOPS)
@settings(max_examples=200, deadline=None)
def test_every_way_to_write_a_text_sends_the_same(
    kind: str, data: st.DataObject, text: str, stops: list[str]
) -> None:
    """Stop strings lie across tokens, tokens across characters: no part of one is sent, and nothing else is lost."""
    tokenizer = KINDS[kind]
    stripped = tokenizer.spelling.leading_spaces and text.startswith(" ")
    sent, stopped = streamed(tokenizer, tokens_of(data, kind, text.encode()), stops)
    assert ("".join(sent), stopped) == until_stop(text[1:] if stripped else text, stops)
    assert not any(REPLACEMENT in piece for piece in sent)


@pytest.mark.parametrize("kind", SPELLS)
@given(data=st.data(), text=TEXTS, stops=STOPS)
@settings(max_examples=100, deadline=None)
def test_an_exact_stream_keeps_every_space(
    kind: str, data: st.DataObject, text: str, stops: list[str]
) -> None:
    """As a grammar reads tokens: also one that begins with a space is that space."""
    sent, stopped = streamed(KINDS[kind], tokens_of(data, kind, text.encode()), stops, exact=True)
    assert ("".join(sent), stopped) == until_stop(text, stops)


@pytest.mark.parametrize("kind", SPELLS)
@given(data=st.data(), raw=st.lists(st.sampled_from(list("日🎉é a".encode())), max_size=16), stops=STOPS)
@settings(max_examples=150, deadline=None)
def test_halves_of_characters(kind: str, data: st.DataObject, raw: list[int], stops: list[str]) -> None:
    """Bytes that are no text are what Unicode says, and the same however they were cut into tokens."""
    sent, stopped = streamed(KINDS[kind], tokens_of(data, kind, bytes(raw)), stops, exact=True)
    assert ("".join(sent), stopped) == until_stop(bytes(raw).decode(errors="replace"), stops)


def row_of(tokenizer: Tokenizer, stops: list[str], told: list[Event]) -> Row:
    request = Request(prompt_token_ids=(1,), stop=tuple(stops))
    return Row(
        request=request,
        prompt=[1],
        plan=PrefillPlan.of(1),
        parameters=RowParameters(request.sampling, 0, None),
        tokenizer=tokenizer,
        max_tokens=10_000,
        context_length=10_000,
        free_unused=lambda: None,
        emit=told.append,
        finished=lambda row: result_of(row, {}),
    )


@pytest.mark.parametrize("kind", SPELLS)
@given(data=st.data(), text=TEXTS, stops=STOPS)
@settings(max_examples=60, deadline=None)
def test_every_burst_is_one_token_after_the_other(
    kind: str, data: st.DataObject, text: str, stops: list[str]
) -> None:
    """The row above the stream: events joined are its text, and a burst of any size ends it at the same token."""
    tokens = tokens_of(data, kind, text.encode())
    ends = []
    for bursts in (1, data.draw(st.integers(1, 7))):
        told: list[Event] = []
        row = row_of(KINDS[kind], stops, told)
        cause = None
        for start in range(0, len(tokens), bursts):
            cause = row.take([Taken(token) for token in tokens[start : start + bursts]])
            if cause is not None:
                break
        row.finish(cause or FinishCause.LENGTH)
        assert "".join(event.text for event in told) == row.text
        assert [event.token_id for event in told[:-1]] == row.generated == tokens[: len(row.generated)]
        ends.append((row.text, list(row.generated), cause))
    assert ends[0] == ends[1]
