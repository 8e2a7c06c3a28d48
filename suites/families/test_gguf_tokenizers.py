"""How text is cut into words, by the name that a GGUF file says: llama.cpp's ids of the same vocabulary.

The vocabulary is made to tell: it is learned without any cutting, so that its tokens reach over words, digits and
blank lines, and every other cut gives other tokens.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import sentencepiece
import xllamacpp  # noqa: F401  (first: see test_gguf)
from gguf_files import write_gguf
from gguf_forms import FORMS
from tiny_checkpoints import MODELS, TEXT
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from paritygate.arms.llama_cpp_inprocess import LlamaCppArm, LlamaCppOptions
from tokenline.checkpoint.gguf_tokenizer import gguf_text_parts
from tokenline.checkpoint.gguf_words import CUTS
from tokenline.errors import CheckpointError

TEXTS = [
    "Hello, world!  two spaces   and\ttabs\t\t.",
    "don't I'M we'll they'Ve '' it'S HE'D",
    "3.14159 and 12345678901234567890 a1b22c333 $5,000",
    "CamelCase SHOUTING iPhone XMLHttpRequest",
    "line one\nline two\r\n\r\n   indented\n\n\n  \nend   ",
    "def f(x):\n    return x**2  # comment\n\n\nclass A:\n\tpass\n",
    'a/b//c /usr/lib/ http://x.y/?q=1&r="2"\n/\n',
    "na\u00efve caf\u00e9 \u2014 \u201cquotes\u201d \u2026 \u00bd \u00b2 \u0663",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3001\u4e2d\u6587\u6587\u672c, \ud55c\uad6d\uc5b4",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e cafe\u0301 e\u0301e\u0301",
    "\U0001f389\U0001f469\u200d\U0001f469 \U0001f1eb\U0001f1f7!!! ###===>>> ~~|`^`",
    "   ",
    "\n",
    "x   77 a    8 b     9",
]
ENDS = "<|endoftext|>"
# The original tokenizers of these take a mark with the letter that it belongs to; llama.cpp's rendering of their rule
# knows letters only.
MARKS_APART = {"gpt-4o", "kanana2", "llama4", "minimax-m2", "tekken"}
MARKED = 10


@pytest.fixture(scope="module")
def vocabulary() -> dict[str, Any]:
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1400,
        special_tokens=[ENDS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=1,
        show_progress=False,
    )
    learned.train_from_iterator([*TEXTS, *TEXTS, *TEXT.split("===")], trainer)
    said = json.loads(learned.to_str())["model"]
    tokens = sorted(said["vocab"], key=said["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token == ENDS else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in said["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": None,
        "llama.vocab_size": len(tokens),
    }


def llama_cpps(file: Path, texts: list[str]) -> list[list[int]]:
    arm = LlamaCppArm("llama.cpp", LlamaCppOptions(context_length=256), str(file))
    arm.open()
    try:
        return [list(arm._ids(text)) for text in texts]
    finally:
        arm.close()


def both(file: Path, said: dict[str, Any]) -> tuple[list[list[int]], list[list[int]]]:
    """Our ids of the texts and llama.cpp's, by a file of that vocabulary."""
    table = np.zeros((len(said["tokenizer.ggml.tokens"]), 96), np.float32)
    directory, tensors = MODELS / "llama" / "checkpoint", {"token_embd.weight": table}
    write_gguf(directory, file, FORMS["llama"], metadata=said, tensors=tensors)
    metadata = {key: field.contents() for key, field in gguf.GGUFReader(file).fields.items()}
    tokenizer = gguf_text_parts(metadata).tokenizer
    return [tokenizer.encode(text, parse_special=True) for text in TEXTS], llama_cpps(file, TEXTS)


@pytest.mark.parametrize("name", sorted(CUTS))
def test_words_are_llama_cpps(tmp_path: Path, vocabulary: dict[str, Any], name: str) -> None:
    ours, theirs = both(tmp_path / "x.gguf", vocabulary | {"tokenizer.ggml.pre": name})
    assert [index for index, ids in enumerate(ours) if ids != theirs[index]] == [MARKED] * (
        name in MARKS_APART
    )


@pytest.fixture(scope="module")
def sentences() -> dict[str, Any]:
    """A vocabulary of SentencePiece's kind, with scores and bytes to fall back to."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()), model_writer=written, model_type="bpe", vocab_size=560,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        character_coverage=0.98, minloglevel=2,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    ids = range(model.vocab_size())
    kinds = [
        2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1 for i in ids
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [float(model.get_score(i)) for i in ids],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.bos_token_id": model.bos_id(),
        "tokenizer.ggml.eos_token_id": model.eos_id(),
        "tokenizer.ggml.unknown_token_id": model.unk_id(),
        "tokenizer.ggml.add_bos_token": None,
        "llama.vocab_size": len(ids),
    }


@pytest.mark.parametrize("prefix", [True, False], ids=["llama", "gemma"])
def test_sentencepiece_vocabularies_are_llama_cpps(
    tmp_path: Path, sentences: dict[str, Any], prefix: bool
) -> None:
    """Gemma's say that no space is put before a text."""
    said = sentences | {"tokenizer.ggml.add_space_prefix": prefix}
    ours, theirs = both(tmp_path / "x.gguf", said)
    assert ours == theirs


def test_the_cuts_are_told_apart_by_this_vocabulary(vocabulary: dict[str, Any]) -> None:
    ids = {
        name: tuple(
            tuple(gguf_text_parts(vocabulary | {"tokenizer.ggml.pre": name}).tokenizer.encode(text))
            for text in TEXTS
        )
        for name in CUTS
    }
    assert len(set(ids.values())) == len(set(CUTS.values()))


def test_a_cut_that_is_not_known_is_refused_by_name(vocabulary: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"'superbpe' is not supported: use one of .*, qwen2, "):
        gguf_text_parts(vocabulary | {"tokenizer.ggml.pre": "superbpe"})
