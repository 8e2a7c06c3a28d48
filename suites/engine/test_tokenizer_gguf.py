"""The tokenizer in a .gguf file, against transformers, llama.cpp and SentencePiece."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import gguf
import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.convert_slow_tokenizer import bytes_to_unicode

from tokenline.checkpoint.gguf_tokenizer import TokenType, gguf_text_parts
from tokenline.checkpoint.parts import TextParts
from tokenline.errors import CheckpointError, RequestError

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two leading, two trailing  ",
    "tabs\t\tand\r\nCRLF\r\n\r\n  x",
    "don't I'M we'll they'Ve ''",
    "naïve café — “quotes” …",
    "日本語のテキスト、中文文本, 한국어 텍스트",
    "🎉👩‍👩‍👧‍👦🇫🇷 zalgo: Z̷͚͐",
    "def f(x):\n    return x**2  # comment\n\n\nclass A:\n\tpass\n",
    '{"key": [true, null, -0.5e-3], "k2": "\\u00e9"}',
    "3.14159 and 12345678901234567890",
    "مرحبا بالعالم שלום עולם नमस्ते दुनिया",
    "\x00\x01\x7f\x80\u200b\u2028\ufeff\ufffd",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><|im_start",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 20,
]

# What llama.cpp's server answered to /tokenize for this file. transformers reads the file without the rule that
# every digit stands alone, so it joins the spaces before one otherwise; the model was trained with that rule.
LLAMA_CPP = {
    "a\t\tb  1  22\n 3": [81, 197, 197, 82, 256, 33, 256, 34, 34, 3805, 35],
    "def f(x):\n    return x**2 # ½ ² ٣\n": [
        1604, 275, 24, 104, 727, 472, 1003, 1792, 828, 34, 907, 216, 16738, 216, 19133, 216, 164, 113, 198
    ],
    "   \n\n 7": [333, 8866, 39],
    "Hello 12345 world  x\n\n  y": [19556, 216, 33, 34, 35, 36, 37, 905, 216, 1792, 8866, 329],
    "<|im_start|>user<|im_end|>": [44, 108, 306, 79, 3738, 108, 46, 4093, 44, 108, 306, 79, 486, 108, 46],
}  # fmt: skip


@pytest.fixture(scope="module")
def metadata(checkpoint_path: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in gguf.GGUFReader(checkpoint_path).fields.items()}


@pytest.fixture(scope="module")
def parts(metadata: dict[str, Any]) -> TextParts:
    return gguf_text_parts(metadata)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_transformers(parts: TextParts, gguf_oracle: Any, text: str) -> None:
    ids = gguf_oracle(text).input_ids
    assert parts.tokenizer.encode(text, parse_special=True) == ids
    assert parts.tokenizer.decode(ids) == gguf_oracle.decode(ids, skip_special_tokens=True)


@given(text=st.text(st.characters(exclude_categories=["Nd", "Nl", "No", "Cs"]), max_size=80))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_ids_of_any_text_without_digits_are_transformers(
    parts: TextParts, gguf_oracle: Any, text: str
) -> None:
    assert parts.tokenizer.encode(text, parse_special=True) == gguf_oracle(text).input_ids


@pytest.mark.parametrize("text", LLAMA_CPP)
def test_ids_are_llama_cpps(parts: TextParts, text: str) -> None:
    assert parts.tokenizer.encode(text) == LLAMA_CPP[text]


def test_every_tokens_bytes_are_transformers(parts: TextParts, gguf_oracle: Any) -> None:
    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    for token_id, token in enumerate(gguf_oracle.convert_ids_to_tokens(range(len(gguf_oracle)))):
        if token_id not in gguf_oracle.all_special_ids and not parts.tokenizer.is_special(token_id):
            assert parts.tokenizer.token_bytes(token_id) == bytes(byte_of[character] for character in token)


def test_what_the_file_declares(parts: TextParts) -> None:
    tokenizer = parts.tokenizer
    assert tokenizer.vocabulary_size == 49152
    assert tokenizer.eos_token_ids == {2}
    assert tokenizer.bos_token_id == 1
    assert not tokenizer.add_bos
    assert [tokenizer.token_text(token_id) for token_id in (0, 1, 2)] == [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
    ]
    assert len(tokenizer.hash) == 64


def test_special_tokens_in_text_are_text(parts: TextParts) -> None:
    text = "".join(parts.tokenizer.special_tokens.values())
    ids = parts.tokenizer.encode(text)
    assert not parts.tokenizer.special_tokens.keys() & set(ids)
    assert parts.tokenizer.decode(ids) == text
    assert parts.tokenizer.encode(text, parse_special=True) == list(parts.tokenizer.special_tokens)


def test_half_a_character_is_refused(parts: TextParts) -> None:
    with pytest.raises(
        RequestError, match=r"half a character .* at position 2: send valid Unicode"
    ) as caught:
        parts.tokenizer.encode("ab\ud83d")
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "kind 'bert' is not supported"),
        ({"tokenizer.ggml.pre": "martian"}, "pre-tokenizer 'martian' is not supported: use one of .*smollm"),
        ({"tokenizer.ggml.tokens": None}, "no tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.merges": None}, "no tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["Ġ t x"]}, "merge 'Ġ t x' joins no two tokens"),
        ({"tokenizer.ggml.merges": ["Ġ 中"]}, "merge 'Ġ 中' joins no two tokens"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "49152 tokens but 2 token types"),
        ({"tokenizer.ggml.eos_token_id": 49152}, "eos token 49152 is outside the vocabulary"),
        ({"tokenizer.chat_template": "{% for"}, "chat template does not compile"),
    ],
)
def test_odd_metadata_is_named(metadata: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        gguf_text_parts({**metadata, **change})


@pytest.fixture(scope="module")
def sentencepiece_model() -> sentencepiece.SentencePieceProcessor:
    """A Llama-like vocabulary, learned on the spot."""
    written = io.BytesIO()
    corpus = (
        Path(__file__).read_text(encoding="utf-8").splitlines()
        + ["the quick brown fox ate the other one"] * 9
    )
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=written, model_type="bpe", vocab_size=600, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, user_defined_symbols=["<think>"],
        character_coverage=0.98, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


@pytest.fixture(scope="module")
def llama_parts(sentencepiece_model: sentencepiece.SentencePieceProcessor) -> TextParts:
    model = sentencepiece_model
    ids = range(model.vocab_size())

    def kind(token_id: int) -> TokenType:
        if model.is_unknown(token_id):
            return TokenType.UNKNOWN
        if model.is_control(token_id):
            return TokenType.CONTROL
        if model.is_byte(token_id):
            return TokenType.BYTE
        return TokenType.USER_DEFINED if model.id_to_piece(token_id) == "<think>" else TokenType.NORMAL

    return gguf_text_parts(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [model.id_to_piece(token_id) for token_id in ids],
            "tokenizer.ggml.scores": [model.get_score(token_id) for token_id in ids],
            "tokenizer.ggml.token_type": [kind(token_id) for token_id in ids],
            "tokenizer.ggml.bos_token_id": model.bos_id(),
            "tokenizer.ggml.eos_token_id": model.eos_id(),
            "tokenizer.ggml.unknown_token_id": model.unk_id(),
        }
    )


@pytest.mark.parametrize("text", [text for text in TEXTS if text and "\x00" not in text])
def test_sentencepiece_ids_and_text_are_sentencepieces(
    sentencepiece_model: sentencepiece.SentencePieceProcessor, llama_parts: TextParts, text: str
) -> None:
    ids = sentencepiece_model.encode(text)
    assert llama_parts.tokenizer.encode(text) == [sentencepiece_model.bos_id(), *ids]
    assert llama_parts.tokenizer.decode(ids) == text == sentencepiece_model.decode(ids)


def test_sentencepiece_merges_never_make_a_special_token(llama_parts: TextParts) -> None:
    ids = llama_parts.tokenizer.encode("<s> </s> <unk>")[1:]
    assert not llama_parts.tokenizer.special_tokens.keys() & set(ids)
    assert llama_parts.tokenizer.decode(ids) == "<s> </s> <unk>"
    assert llama_parts.tokenizer.encode("<s>x", parse_special=True)[:2] != [1, 1]
