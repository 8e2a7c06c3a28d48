"""Experts and latent attention beyond what the tiny checkpoints hold: other layouts, other settings of a family."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
from family_oracles import mlx_lm_of, transformers_of
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from tokenline.checkpoint.fp8 import E4M3
from tokenline.checkpoint.mxfp4 import dequantize_mxfp4
from tokenline.client import Model
from tokenline.errors import CheckpointError

MODELS = Path(__file__).parents[2] / "golden" / "models"
TOKENS = [int(token) for token in np.random.default_rng(2).integers(3, 259, 120)]
ENVELOPE = 1e-4

Variant = Callable[..., Path]


@pytest.fixture
def variant(tmp_path: Path) -> Variant:
    """A tiny checkpoint with other settings, and with other weights where they are given."""

    def made(
        family: str, weights: dict[str, torch.Tensor] | None = None, name: str = "", **settings: Any
    ) -> Path:
        directory = tmp_path / (name or family)
        shutil.copytree(MODELS / family / "checkpoint", directory)
        config = json.loads((directory / "config.json").read_text()) | settings
        config = {key: value for key, value in config.items() if value is not ...}
        (directory / "config.json").write_text(json.dumps(config))
        if weights is not None:
            save_file(
                {name: value.contiguous() for name, value in weights.items()}, directory / "model.safetensors"
            )
        return directory

    return made


def said(directory: Path, backend: str) -> np.ndarray:
    with Model(str(directory), backend=backend, dtype="float32", threads=1) as model:
        return model.logits(TOKENS)


def in_memory(family: str) -> dict[str, torch.Tensor]:
    """The weights by transformers' names and shapes in memory."""
    loaded = AutoModelForCausalLM.from_pretrained(MODELS / family / "checkpoint", dtype=torch.float32)
    return loaded.state_dict()


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert np.abs(ours - theirs).max() / np.ptp(theirs) < ENVELOPE


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_stacked_experts_are_the_same_experts(variant: Variant, family: str, backend: str) -> None:
    stacked = variant(family, in_memory(family))
    np.testing.assert_array_equal(said(stacked, backend), said(MODELS / family / "checkpoint", backend))


def test_mlx_lms_layout_is_read(variant: Variant, backend: str) -> None:
    weights = in_memory("qwen3_moe")
    for name in [name for name in weights if name.endswith("experts.gate_up_proj")]:
        block = name.removesuffix("experts.gate_up_proj")
        gate, up = weights.pop(name).chunk(2, dim=1)
        down = weights.pop(f"{block}experts.down_proj")
        for part, value in (("gate", gate), ("up", up), ("down", down)):
            weights[f"{block}switch_mlp.{part}_proj.weight"] = value
    np.testing.assert_array_equal(
        said(variant("qwen3_moe", weights), backend), said(MODELS / "qwen3_moe" / "checkpoint", backend)
    )


def test_gpt_oss_in_floats_is_what_transformers_says_of_it(variant: Variant, backend: str) -> None:
    directory = variant("gpt_oss", in_memory("gpt_oss"), quantization_config=...)
    close(said(directory, backend), transformers_of(directory).logits(TOKENS))


def test_mxfp4_is_mlxs() -> None:
    rng = np.random.default_rng(4)
    words = rng.integers(0, 1 << 32, (6, 12), dtype=np.uint32)
    scales = rng.integers(96, 160, (6, 3), dtype=np.uint8)
    theirs = mx.dequantize(mx.array(words), mx.array(scales), mode="mxfp4", dtype=mx.float32)
    ours = dequantize_mxfp4(words.view(np.uint8).reshape(6, 3, 16), scales)
    np.testing.assert_array_equal(ours, np.array(theirs))


def test_eight_bit_floats_are_torchs() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    np.testing.assert_array_equal(E4M3, codes.to(torch.float32).numpy())


def test_deepseek_in_eight_bit_floats_is_deepseek_of_their_values(variant: Variant) -> None:
    """As published: blocks of 128 on 128, the last of them partial."""
    eight, floats = {}, {}
    for name, value in load_file(MODELS / "deepseek_v3" / "checkpoint" / "model.safetensors").items():
        eight[name] = floats[name] = value.to(torch.float32)
        if not name.endswith("proj.weight"):
            continue
        rows, columns = (-(-size // 128) for size in value.shape)
        scales = torch.rand(rows, columns) + 0.5
        wide = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[: value.shape[0], : value.shape[1]]
        eight[name] = (floats[name] / wide).to(torch.float8_e4m3fn)
        eight[f"{name}_scale_inv"] = scales
        floats[name] = eight[name].to(torch.float32) * wide
    settings = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    published = said(variant("deepseek_v3", eight, "fp8", quantization_config=settings), "torch")
    np.testing.assert_array_equal(published, said(variant("deepseek_v3", floats), "torch"))


def test_fp8_without_blocks_is_refused_by_name(variant: Variant) -> None:
    directory = variant("deepseek_v3", quantization_config={"quant_method": "fp8"})
    with pytest.raises(CheckpointError, match="weight_block_size None"):
        said(directory, "torch")


def test_mixtral_slides_where_its_configuration_says_so(variant: Variant, backend: str) -> None:
    directory = variant("mixtral", sliding_window=40)
    theirs = transformers_of(directory).logits(TOKENS)
    close(said(directory, backend), theirs)
    full = transformers_of(MODELS / "mixtral" / "checkpoint").logits(TOKENS)
    assert np.abs(full - theirs).max() / np.ptp(theirs) > 100 * ENVELOPE


@pytest.mark.parametrize(
    "settings",
    [
        {"q_lora_rank": None},
        {"attention_bias": True},
        {"rope_interleave": False},
        {"n_group": 1, "topk_group": 1, "norm_topk_prob": False},
        {"rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_deepseek_with_other_settings_is_transformers(
    variant: Variant, settings: dict[str, Any], backend: str
) -> None:
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(MODELS / "deepseek_v3" / "checkpoint")
    for key, value in settings.items():
        if key != "rope_scaling":
            setattr(config, key, value)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(0, 0.2)
    directory = variant("deepseek_v3", model.state_dict(), **settings)
    close(said(directory, backend), transformers_of(directory).logits(TOKENS))


@pytest.mark.parametrize(("key", "value"), [("topk_method", "greedy"), ("scoring_func", "softmax")])
def test_another_routing_is_refused_by_name(variant: Variant, key: str, value: str) -> None:
    with pytest.raises(CheckpointError, match=f"{key} '{value}'"):
        said(variant("deepseek_v3", **{key: value}), "torch")


def test_the_layers_that_draft_are_left_alone(variant: Variant) -> None:
    extra = {"model.layers.3.eh_proj.weight": torch.zeros(64, 128)}
    directory = variant("deepseek_v3", in_memory("deepseek_v3") | extra, num_nextn_predict_layers=1)
    np.testing.assert_array_equal(
        said(directory, "torch"), said(MODELS / "deepseek_v3" / "checkpoint", "torch")
    )


def llama4_with(**settings: Any) -> dict[str, Any]:
    config = json.loads((MODELS / "llama4" / "checkpoint" / "config.json").read_text())
    return {"text_config": config["text_config"] | settings}


@pytest.mark.parametrize(
    "settings",
    [
        {"use_qk_norm": False},
        {"attn_temperature_tuning": False},
        {"no_rope_layers": [1, 0, 0, 1], "layer_types": None},
        {"attention_chunk_size": 7},
        {"attention_chunk_size": None, "layer_types": None},
        {"rms_norm_eps": 1e-2},
        # Scout's: short and long wavelengths meet in one, with nothing between to blend.
        {
            "rope_scaling": None,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 16.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 1.0,
                "original_max_position_embeddings": 64,
            },
        },
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_llama4_with_other_settings_is_transformers(
    variant: Variant, settings: dict[str, Any], backend: str
) -> None:
    directory = variant("llama4", **llama4_with(**settings))
    theirs = transformers_of(directory).logits(TOKENS)
    close(said(directory, backend), theirs)
    as_it_was = transformers_of(MODELS / "llama4" / "checkpoint").logits(TOKENS)
    assert np.abs(theirs - as_it_was).max() / np.ptp(theirs) > 3 * ENVELOPE  # the setting is felt


def test_mlx_lm_norms_heads_of_llama4_with_an_epsilon_of_its_own(variant: Variant) -> None:
    """1e-6; the published code and transformers take the configuration's, 1e-5 as published."""
    directory = variant("llama4", **llama4_with(rms_norm_eps=1e-2))
    theirs, mlx = transformers_of(directory).logits(TOKENS), mlx_lm_of(directory).logits(TOKENS)
    assert np.abs(mlx - theirs).max() / np.ptp(theirs) > 3 * ENVELOPE
