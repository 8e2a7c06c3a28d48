"""Opening checkpoints: layouts against transformers and the gguf package, and every broken file's one line."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from gguf import GGML_QUANT_SIZES, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

from tokenline.checkpoint import gguf
from tokenline.checkpoint.hugging_face import SafetensorsFile
from tokenline.checkpoint.open import open_checkpoint
from tokenline.client import Model
from tokenline.errors import CheckpointError
from tokenline.models import FAMILIES
from tokenline.ops.arrays import QuantizedArray, dense, stack_rows

from gguf import GGMLQuantizationType as Kind  # isort: skip

TOKENS = [1, 50, 7, 200, 33, 90, 12]


def test_sharded_safetensors_hold_what_transformers_saved(
    tiny_checkpoint: Path, tiny_oracle: transformers.LlamaForCausalLM
) -> None:
    assert len(list(tiny_checkpoint.glob("model-*.safetensors"))) > 1
    opened = open_checkpoint(str(tiny_checkpoint), FAMILIES)
    for name, parameter in tiny_oracle.state_dict().items():
        np.testing.assert_array_equal(opened.tensors.take(name, tuple(parameter.shape)), parameter.numpy())
    assert opened.tensors.unused() == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_every_stored_float_is_widened_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.randn(3, 5).to(dtype)
    safetensors.torch.save_file({"x": values}, tmp_path / "one.safetensors")
    np.testing.assert_array_equal(
        SafetensorsFile(tmp_path / "one.safetensors").read("x"), values.float().numpy()
    )


def test_gguf_row_order_and_blocks_against_transformers(checkpoint_path: Path) -> None:
    """transformers dequantizes the same file and undoes the same permutation."""
    oracle = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint_path.parent, gguf_file=checkpoint_path.name, dtype=torch.float32
    )
    opened = open_checkpoint(str(checkpoint_path), FAMILIES)
    state = oracle.state_dict()
    for name in (
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.29.self_attn.k_proj.weight",
        "model.layers.7.mlp.down_proj.weight",
        "model.layers.7.input_layernorm.weight",
    ):
        theirs = state[name].numpy()
        np.testing.assert_array_equal(dense(opened.tensors.take(name, theirs.shape)), theirs)
    config = oracle.config
    assert opened.config["rope_theta"] == (config.rope_parameters or {}).get("rope_theta")
    assert opened.config["max_position_embeddings"] == config.max_position_embeddings
    assert opened.config["rms_norm_eps"] == pytest.approx(config.rms_norm_eps)


QUANTIZED_HERE = (Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.BF16)
# Types that the gguf package does not write: any bytes are blocks of theirs.
BY_BYTES = (Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_NL, Kind.MXFP4)


def file_of_one_matrix(path: Path, kind: Kind) -> GGUFReader:
    """[4, 512] of that type, as a llama's."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((4, 512)).astype(np.float32)
    if kind in QUANTIZED_HERE:
        raw = quantize(values, kind)
    elif kind in (Kind.F16, Kind.F32):
        raw = values.astype(np.float16 if kind == Kind.F16 else np.float32)
    else:
        numbers, size = GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 256, (4, 512 // numbers * size), dtype=np.uint8)
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("blk.0.ffn_down.weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return gguf.read_gguf(path)


def read_from(reader: GGUFReader) -> Any:
    said = {"general.architecture": "llama", "llama.block_count": 1}
    tensors = gguf.tensors("x.gguf", said, reader, {})
    return tensors.take("model.layers.0.mlp.down_proj.weight", (4, 512))


@pytest.mark.parametrize("kind", [*QUANTIZED_HERE, *BY_BYTES, Kind.F16, Kind.F32], ids=lambda kind: kind.name)
def test_gguf_block_types_against_the_gguf_package(tmp_path: Path, kind: Kind) -> None:
    reader = file_of_one_matrix(tmp_path / "x.gguf", kind)
    read = read_from(reader)
    expected = dequantize(reader.tensors[0].data, kind)
    np.testing.assert_array_equal(dense(read), expected.reshape(4, 512))
    assert np.isfinite(dense(read)).any()
    assert isinstance(read, QuantizedArray) == (kind in (Kind.Q4_1, Kind.Q8_0))


@pytest.mark.parametrize("kind", [Kind.IQ2_XXS, Kind.IQ4_XS, Kind.TQ2_0], ids=lambda kind: kind.name)
def test_another_type_of_blocks_is_refused_by_name(tmp_path: Path, kind: Kind) -> None:
    reader = file_of_one_matrix(tmp_path / "x.gguf", kind)
    with pytest.raises(
        CheckpointError, match=f"blk.0.ffn_down.weight is stored as {kind.name}, .*supported: F32, F16, BF16"
    ):
        read_from(reader)


def test_stacking_stays_quantized_only_where_all_parts_are() -> None:
    codes = np.ones((2, 32), np.uint8)
    part = QuantizedArray(codes, np.ones((2, 1), np.float32), np.zeros((2, 1), np.float32), 4, 32)
    other = QuantizedArray(codes, np.ones((2, 1), np.float32), np.zeros((2, 1), np.float32), 8, 32)
    assert isinstance(stack_rows([part, part]), QuantizedArray)
    mixed = stack_rows([part, other])
    assert isinstance(mixed, np.ndarray)
    assert mixed.shape == (4, 32)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "garbage", "truncated", "list"])
def test_a_broken_json_file_is_one_line_that_names_it(
    tiny_checkpoint: Path, tmp_path: Path, name: str, damage: str
) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    content = {"garbage": b"\x80\x81", "truncated": (copy / name).read_bytes()[:40], "list": b"[]"}
    (copy / name).unlink()
    if damage != "missing":
        (copy / name).write_bytes(content[damage])
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(str(copy), FAMILIES)
    assert "\n" not in str(caught.value)
    assert caught.value.mend
    assert name.split(".")[0] in str(caught.value)


@pytest.mark.parametrize("keep", [0, 7, 8, 60, 0.5, 0.999])
def test_a_truncated_shard_is_told(tiny_checkpoint: Path, tmp_path: Path, keep: float) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    shard = sorted(copy.glob("model-*.safetensors"))[0]
    data = shard.read_bytes()
    shard.write_bytes(data[: int(keep if keep > 1 or keep == 0 else keep * len(data))])
    with pytest.raises(CheckpointError, match=shard.name):
        open_checkpoint(str(copy), FAMILIES)


def test_a_missing_shard_is_told(tiny_checkpoint: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    shard = sorted(copy.glob("model-*.safetensors"))[0]
    shard.unlink()
    with pytest.raises(CheckpointError, match=shard.name):
        open_checkpoint(str(copy), FAMILIES)


def test_a_header_that_lies_about_its_length_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(CheckpointError, match="header"):
        SafetensorsFile(path)


def change(path: Path, **values: object) -> None:
    config = json.loads(path.read_text())
    config.update(values)
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "mamba9"}, "family 'mamba9', which is not supported: supported: "),
        ({"model_type": None}, "family None"),
        ({"hidden_size": 128}, "has shape"),
        ({"num_hidden_layers": 2}, "tensors that a llama does not have"),
        ({"num_hidden_layers": 4}, "lacks model.layers.3"),
        ({"num_attention_heads": 3}, "make no model"),
        ({"vocab_size": None}, "lacks 'vocab_size'"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported"),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "'spiral' is not supported"),
    ],
)
def test_a_configuration_that_does_not_fit_is_one_line(
    tiny_checkpoint: Path, tmp_path: Path, values: dict, message: str
) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    change(copy / "config.json", **values)
    with pytest.raises(CheckpointError) as caught:
        Model(str(copy), backend="torch", threads=1)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 3, 4, 20, 5000, 0.3, 0.999999])
def test_a_truncated_gguf_is_one_line(checkpoint_path: Path, tmp_path: Path, keep: float) -> None:
    path = tmp_path / "cut.gguf"
    size = checkpoint_path.stat().st_size
    with checkpoint_path.open("rb") as source:
        path.write_bytes(source.read(int(keep * size) if 0 < keep < 1 else int(keep)))
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(str(path), FAMILIES)
    assert "\n" not in str(caught.value)
    assert "cut.gguf" in str(caught.value)
    assert caught.value.mend


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"GGUF" + b"\xff" * 200), "corrupt"),
        (lambda path: path.write_text("no model at all"), "not a GGUF"),
    ],
)
def test_what_is_no_gguf_is_told(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "odd.gguf")
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(str(tmp_path / "odd.gguf"), FAMILIES)


def test_another_architecture_in_gguf_is_refused_by_name(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "x.gguf", "rwkv9")
    writer.add_tensor("a.weight", np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(
        CheckpointError, match=r"'rwkv9', which is not supported: supported in GGUF: .*granite.*, llama, "
    ):
        open_checkpoint(str(tmp_path / "x.gguf"), FAMILIES)


def test_a_tied_head_stored_all_the_same_is_no_stranger(tmp_path: Path, tiny_checkpoint: Path) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    change(copy / "config.json", tie_word_embeddings=True)
    with Model(str(copy), backend="torch", threads=1) as model:
        assert model.logits(TOKENS).shape == (len(TOKENS), 259)
