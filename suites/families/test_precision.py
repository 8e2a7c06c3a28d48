"""Fewer bits for weights and caches: against mlx-lm's, and a hit against a cold run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
import torch
from family_oracles import MlxLm, mlx_lm_of
from mlx_lm.models.cache import QuantizedKVCache
from mlx_lm.utils import quantize_model
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from paritygate.arms.mlx_lm_model import load_mlx
from tokenline.client import Model
from tokenline.errors import BackendError, CheckpointError
from tokenline.ops.arrays import quantized

MODELS = Path(__file__).parents[2] / "golden" / "models"
TOKENS = [int(token) for token in np.random.default_rng(2).integers(3, 259, 300)]
ENVELOPE = 1e-4
FULL, SLIDING = "full_attention", "sliding_attention"


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / np.ptp(theirs))


def said(directory: Path, backend: str, **options: int | str) -> np.ndarray:
    with Model(str(directory), backend=backend, **{"dtype": "float32", "threads": 1} | options) as model:
        return model.logits(TOKENS)


def wide_heads(directory: Path, last: str) -> Path:
    """Qwen 3 with heads of 64, which have whole groups, noise for weights, and a last layer that may slide."""
    shutil.copytree(MODELS / "qwen3" / "checkpoint", directory)
    settings = {
        "head_dim": 64,
        "use_sliding_window": last == SLIDING,
        "sliding_window": 48 if last == SLIDING else None,
        "max_window_layers": 2,
        "layer_types": [FULL, FULL, last],
    }
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory), dtype=torch.float32)
    weights = {
        name: (value + torch.randn_like(value) * 0.2).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, directory / "model.safetensors")
    return directory


@pytest.mark.parametrize("bits", [8, 4])
def test_a_hit_in_few_bits_is_a_cold_run_bit_for_bit(tmp_path: Path, backend: str, bits: int) -> None:
    directory = wide_heads(tmp_path / "checkpoint", SLIDING)
    with Model(str(directory), backend=backend, dtype="float32", threads=1, kv_bits=bits) as model:

        def answer(prompt: list[int]) -> tuple[list[int], object, int]:
            said = model.generate(prompt, max_tokens=12, logprobs=3, ignore_eos=True)
            return said["token_ids"], said["logprobs"], said["usage"]["cached_tokens"]

        changed = [*TOKENS[:280], *TOKENS[:20]]
        *cold, cached = answer(TOKENS)
        assert cached == 0
        model.reset_cache()
        *cold_changed, _ = answer(changed)
        model.reset_cache()
        answer(TOKENS)
        *hit, cached = answer(TOKENS)
        assert cached == len(TOKENS) - 1
        assert hit == cold
        *moved, cached = answer(changed)
        assert cached == 256
        assert moved == cold_changed
        assert model.manifest["kv_bits"] == bits


@pytest.mark.parametrize("bits", [8, 4])
def test_few_bits_say_what_mlx_lm_says_over_its_quantized_cache(
    tmp_path: Path, backend: str, bits: int
) -> None:
    """Every layer full, as mlx-lm's rotating cache cannot be quantized, and the first 256 tokens.

    At token 271 a key lies so near between two codes of four bits that the last bit of its rotation decides, and that
    is a step of the group's range and no rounding. Both backends agree there; mlx-lm takes the other code.
    """
    directory = wide_heads(tmp_path / "checkpoint", FULL)
    network = load_mlx(directory, threads=1)
    caches = [QuantizedKVCache(group_size=64, bits=bits) for _ in network.layers]
    theirs = np.array(network(mx.array([TOKENS[:256]]), cache=caches)[0])
    assert apart(said(directory, backend, kv_bits=bits)[:256], theirs) < ENVELOPE
    assert apart(MlxLm(directory).logits(TOKENS[:256]), theirs) > 3 * ENVELOPE  # the bits are felt


def test_heads_too_small_are_refused_as_the_model_is_loaded(backend: str) -> None:
    with pytest.raises(BackendError, match="16 entries"):
        said(MODELS / "qwen3" / "checkpoint", backend, kv_bits=8)


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_matrices_are_mlxs(bits: int, group: int) -> None:
    matrix = np.random.default_rng(bits + group).normal(0, 1, (40, 256)).astype(np.float32)
    matrix[0], matrix[1], matrix[2] = 0, 3.5, np.abs(matrix[2])
    matrix[3], matrix[4, 7] = -np.abs(matrix[3]), 1000
    ours = quantized(matrix, bits, group)
    codes, scales, biases = mx.quantize(mx.array(matrix), group_size=group, bits=bits)
    assert ours.scales.dtype == ours.biases.dtype == np.float32
    np.testing.assert_allclose(ours.scales, np.array(scales), rtol=1e-6)
    np.testing.assert_array_equal(ours.biases, np.array(biases))
    theirs = np.array(mx.dequantize(codes, scales, biases, group_size=group, bits=bits))
    np.testing.assert_allclose(ours.dequantize(), theirs, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_quantized_at_load_say_what_mlx_lm_says_of_its_own(backend: str, bits: int) -> None:
    directory = MODELS / "qwen3" / "checkpoint"
    network = load_mlx(directory, threads=1)
    network, _ = quantize_model(network, {}, 32, bits)
    theirs = np.array(network(mx.array([TOKENS]))[0])
    assert apart(said(directory, backend, weight_bits=bits, weight_group=32), theirs) < ENVELOPE
    assert apart(mlx_lm_of(directory).logits(TOKENS), theirs) > 3 * ENVELOPE  # the bits are felt


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Path]:
    def made(family: str, **options: int | str) -> Path:
        mlx_lm.convert(
            str(MODELS / family / "checkpoint"),
            str(tmp_path / "mlx"),
            quantize=True,
            dtype="float32",
            **options,
        )
        return tmp_path / "mlx"

    return made


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_what_mlx_lm_quantized_is_read_as_mlx_lm_reads_it(
    converted: Callable[..., Path], backend: str, bits: int
) -> None:
    directory = converted("qwen3", q_bits=bits, q_group_size=32)
    assert apart(said(directory, backend), MlxLm(directory).logits(TOKENS)) < ENVELOPE


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral", "deepseek_v3"])
def test_experts_that_mlx_lm_quantized_are_read_too(
    converted: Callable[..., Path], backend: str, family: str
) -> None:
    directory = converted(family, q_bits=4, q_group_size=32)
    assert apart(said(directory, backend), MlxLm(directory).logits(TOKENS)) < ENVELOPE


@pytest.mark.parametrize(
    ("options", "told"), [({"q_bits": 6, "q_group_size": 32}, "6 bits"), ({"q_mode": "mxfp4"}, "mxfp4")]
)
def test_another_quantization_is_refused_by_name(
    converted: Callable[..., Path], options: dict[str, int | str], told: str
) -> None:
    directory = converted("qwen3", **options)
    with pytest.raises(CheckpointError, match=told):
        said(directory, "torch")
