"""Any tokens, cut anywhere: what the detokenizer gives out, joined, is the text of the whole."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models
from toy_tokenizers import KINDS

from tokenline.errors import CheckpointError
from tokenline.text.detokenizer import Detokenizer
from tokenline.text.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"


def streamed(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(token_id) for token_id in token_ids), detokenizer.flush()]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_joined_stream_is_the_decoded_whole(kind: str, data: st.DataObject) -> None:
    tokenizer = KINDS[kind]
    token_ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary_size + 2), max_size=40))
    assert "".join(streamed(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_decoding_is_the_tokenizers_librarys_where_the_bytes_are_text(kind: str, data: st.DataObject) -> None:
    """The oracle is the `tokenizers` library; where bytes are no text, it and Unicode differ in counting U+FFFD."""
    tokenizer = KINDS[kind]
    token_ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary_size - 2), max_size=40))
    ours = tokenizer.decode(token_ids)
    if REPLACEMENT not in ours:
        assert ours == tokenizer._plain.decode(token_ids, skip_special_tokens=True)


@given(text=st.text(max_size=60))
@settings(max_examples=300)
def test_text_goes_through_unharmed_and_never_half_a_character_comes_out(text: str) -> None:
    tokenizer = KINDS["byte-level"]
    pieces = streamed(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    assert text.count(REPLACEMENT) == sum(piece.count(REPLACEMENT) for piece in pieces)
    assert pieces[-1] == ""


@given(data=st.binary(max_size=40))
def test_any_bytes_are_what_unicode_says(data: bytes) -> None:
    """Python's decoder is the oracle: one U+FFFD per maximal invalid part (Unicode 15, section 3.9)."""
    tokenizer = KINDS["byte-fallback-unstripped"]
    assert "".join(streamed(tokenizer, [1 + byte for byte in data])) == data.decode("utf-8", errors="replace")


def test_an_unfinished_character_is_flushed_once() -> None:
    tokenizer = KINDS["byte-level"]
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.push(byte) for byte in "日".encode()] == ["", "", "日"]
    assert detokenizer.push(0xE6) == ""
    assert detokenizer.push(0x97) == ""
    assert detokenizer.flush() == REPLACEMENT
    assert detokenizer.flush() == ""


def test_a_character_is_whole_across_a_special_token() -> None:
    tokenizer = KINDS["byte-level"]
    end = tokenizer._plain.token_to_id("<|end|>")
    assert streamed(tokenizer, [0xC3, end, 0xA9]) == ["", "", "é", ""]


def test_added_text_is_itself_and_special_tokens_are_not_text() -> None:
    for tokenizer in KINDS.values():
        thinks, ends = (tokenizer._plain.token_to_id(token) for token in ("<think é>", "<|end|>"))
        assert tokenizer.token_bytes(thinks) == "<think é>".encode()
        assert tokenizer.token_bytes(ends) == b""
        assert tokenizer.token_text(ends) == "<|end|>"
        assert tokenizer.is_special(ends)
        assert not tokenizer.is_special(thinks)
        assert tokenizer.decode([ends, thinks, ends]) == "<think é>"


def test_token_bytes_are_exact() -> None:
    assert [KINDS["byte-level"].token_bytes(byte) for byte in range(256)] == [
        bytes([byte]) for byte in range(256)
    ]
    assert KINDS["byte-level"].token_bytes(256) == b"\xe6\x97"
    assert KINDS["byte-fallback"].token_bytes(1 + 0xE6) == b"\xe6"
    assert KINDS["byte-fallback"].token_bytes(259) == " 日".encode()
    assert KINDS["byte-level"].token_bytes(10**6) == b""


@pytest.mark.parametrize(
    ("kind", "token_ids", "text"),
    [
        ("byte-fallback", [257, 260], "a"),
        ("byte-fallback", [258, 260], " a"),
        ("byte-fallback", [257, 257, 257, 260], "  a"),
        ("byte-fallback", [260, 257, 260], "a a"),
        ("byte-fallback", [1 + 0x20, 260], "a"),
        ("byte-fallback-unstripped", [257, 260], " a"),
        ("metaspace", [2, 4], "a"),
        ("metaspace", [3, 3], "日 日"),
    ],
)
def test_the_space_before_a_text_is_dropped_as_its_tokenizer_says(
    kind: str, token_ids: list[int], text: str
) -> None:
    assert KINDS[kind].decode(token_ids) == text
    assert "".join(streamed(KINDS[kind], token_ids)) == text


def test_a_decoder_that_is_not_known_is_named() -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    backend.decoder = decoders.CTC()
    with pytest.raises(CheckpointError, match="'CTC' is not supported"):
        Tokenizer(backend, eos_token_ids=frozenset(), bos_token_id=None, add_bos=False)
