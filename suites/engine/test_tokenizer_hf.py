"""The tokenizer of a Hugging Face directory, against transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, processors

from tokenline.checkpoint.hf_tokenizer import hf_text_parts
from tokenline.errors import CheckpointError

TEXTS = ["", "plain", "  日本語 🎉\r\n", "<|im_start|>user<|im_end|>"]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_transformers(tiny_checkpoint: Path, text: str) -> None:
    oracle = transformers.AutoTokenizer.from_pretrained(tiny_checkpoint)
    tokenizer = hf_text_parts(tiny_checkpoint).tokenizer
    assert tokenizer.encode(text, parse_special=True) == oracle(text).input_ids
    assert tokenizer.decode(oracle(text).input_ids) == oracle.decode(
        oracle(text).input_ids, skip_special_tokens=True
    )


def _llama_directory(directory: Path) -> Path:
    """A byte-fallback tokenizer that begins every text with <s>."""
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\u2581",
        "a",
        "</",
        "s>",
        "\u2581a",
    ]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[("\u2581", "a"), ("</", "s>")],
            byte_fallback=True,
            unk_token="<unk>",
        )
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(directory)
    return directory


@pytest.mark.parametrize("text", ["a a", "  a", "日本 a", "a</s>a"])
def test_bos_comes_once_where_the_checkpoint_wants_it(tmp_path: Path, text: str) -> None:
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(_llama_directory(tmp_path))
    tokenizer = hf_text_parts(tmp_path).tokenizer
    assert tokenizer.add_bos
    assert tokenizer.encode(text, parse_special=True) == oracle(text).input_ids
    assert tokenizer.encode("<s>" + text, parse_special=True) == oracle(text).input_ids
    assert tokenizer.encode("<s>" + text)[0] == 1
    assert 1 not in tokenizer.encode("<s>" + text)[1:]
    assert tokenizer.decode(tokenizer.encode("<s>" + text)) == "<s>" + text


def test_what_ends_a_generation_is_read_in_order(tiny_checkpoint: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    (copy / "generation_config.json").write_text('{"eos_token_id": [256, 258]}')
    assert hf_text_parts(copy).tokenizer.eos_token_ids == {256, 258}
    (copy / "generation_config.json").unlink()
    assert hf_text_parts(copy).tokenizer.eos_token_ids == {258}
    (copy / "config.json").unlink()
    assert hf_text_parts(copy).tokenizer.eos_token_ids == {258}


def test_the_template_is_found_wherever_it_is_kept(tiny_checkpoint: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    (copy / "chat_template.jinja").write_text("own file")
    template = hf_text_parts(copy).template
    assert template is not None
    assert template.source == "own file"
    (copy / "chat_template.jinja").unlink()
    config = json.loads((copy / "tokenizer_config.json").read_text())
    config["chat_template"] = [
        {"name": "tool_use", "template": "t"},
        {"name": "default", "template": "by name"},
    ]
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    template = hf_text_parts(copy).template
    assert template is not None
    assert template.source == "by name"
    (copy / "tokenizer_config.json").unlink()
    assert hf_text_parts(copy).template is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", None, "tokenizer.json is missing: use a checkpoint with"),
        ("tokenizer.json", "{", "tokenizer.json is not a tokenizer"),
        ("tokenizer_config.json", "{", "tokenizer_config.json is not JSON"),
        ("generation_config.json", "[]", "generation_config.json is not a JSON object"),
    ],
)
def test_a_bad_file_is_named(
    tiny_checkpoint: Path, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    (copy / name).unlink(missing_ok=True)
    if content is not None:
        (copy / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        hf_text_parts(copy)
