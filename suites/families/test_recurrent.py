"""Recurrent families beyond what the tiny checkpoints hold: what else a family's configuration may say, with weights
drawn at random, as transformers reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from family_oracles import TRANSFORMERS_DIFFERS, MlxLm, Transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.core_model_loading import revert_weight_conversion

from tokenline.client import Model
from tokenline.errors import CheckpointError

MODELS = Path(__file__).parents[2] / "golden" / "models"
TOKENS = [int(token) for token in np.random.default_rng(2).integers(3, 259, 140)]
ENVELOPE = 1e-4


def drawn(directory: Path, family: str, settings: dict[str, Any], **added: torch.Tensor) -> Path:
    """The tiny checkpoint with other settings and weights to match."""
    shutil.copytree(MODELS / family / "checkpoint", directory, dirs_exist_ok=True)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8")) | settings
    config = {key: value for key, value in config.items() if value is not ...}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.manual_seed(1)
    loaded = AutoConfig.from_pretrained(directory)
    model = AutoModelForCausalLM.from_config(loaded, dtype=torch.float32)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if not name.endswith(("A_log", "inv_freq", "mup_vector")):
                value.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.2)
    stored = revert_weight_conversion(model, model.state_dict())
    if loaded.tie_word_embeddings:
        stored.pop("lm_head.weight")
    weights = {name: value.contiguous() for name, value in {**stored, **added}.items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def said(directory: Path, backend: str) -> np.ndarray:
    with Model(str(directory), backend=backend, dtype="float32", threads=1) as model:
        return model.logits(TOKENS)


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lfm2 with biases and a width as it is told": (
        "lfm2",
        {"conv_bias": True, "block_auto_adjust_ff_dim": False, "block_ff_dim": 96, "conv_L_cache": 4},
    ),
    "mamba2 with biases, limits and one group": (
        "mamba2",
        {"use_bias": True, "use_conv_bias": False, "n_groups": 1, "time_step_limit": [0.3, 0.9]},
    ),
    "mamba2 tied": ("mamba2", {"tie_word_embeddings": True}),
    "granite with biases and groups": (
        "granitemoehybrid",
        {"mamba_proj_bias": True, "mamba_conv_bias": False, "attention_bias": True, "mamba_n_groups": 4},
    ),
    "granite of attention alone": ("granitemoehybrid", {"layer_types": ["attention"] * 4}),
    "nemotron with biases and a pattern that begins with an MLP": (
        "nemotron_h",
        {
            "hybrid_override_pattern": ...,
            "layers_block_type": ["mlp", "full_attention", "moe", "linear_attention"],
            "num_hidden_layers": 4,
            "use_bias": True,
            "mamba_proj_bias": True,
            "mlp_bias": True,
        },
    ),
    "nemotron with a latent and groups of experts": (
        "nemotron_h",
        {"moe_latent_size": 24, "n_group": 2, "topk_group": 1},
    ),
    "falcon with a norm before the gate": (
        "falcon_h1",
        {"mamba_rms_norm": True, "mamba_norm_before_gate": True, "mamba_n_groups": 2},
    ),
    "falcon with a norm after the gate, biases and another input scale": (
        "falcon_h1",
        {
            "mamba_rms_norm": True,
            "mamba_proj_bias": True,
            "projectors_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "attention_in_multiplier": 0.7,
        },
    ),
    "qwen3_next without experts": ("qwen3_next", {"num_experts": 0, "attention_bias": True}),
    "qwen3_next with shares as they are": ("qwen3_next", {"norm_topk_prob": False, "mlp_only_layers": []}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_else_a_configuration_says_is_transformers(tmp_path: Path, variant: str, backend: str) -> None:
    family, settings = VARIANTS[variant]
    directory = drawn(tmp_path / family, family, settings)
    _, changes = TRANSFORMERS_DIFFERS.get(family, ("", {}))
    theirs = Transformers(directory, **changes).logits(TOKENS)
    assert np.abs(said(directory, backend) - theirs).max() / np.ptp(theirs) < ENVELOPE


def test_a_language_model_is_read_alone_as_in_what_sees(tmp_path: Path, backend: str) -> None:
    nested = json.loads((MODELS / "qwen3_5" / "checkpoint" / "config.json").read_text(encoding="utf-8"))
    alone = drawn(tmp_path / "alone", "qwen3_5", {**nested["text_config"], "text_config": ...})
    theirs = Transformers(alone).logits(TOKENS)
    assert np.abs(said(alone, backend) - theirs).max() / np.ptp(theirs) < ENVELOPE


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("falcon_h1", {"key_multiplier": 1.0}),
        ("mamba2", {"n_groups": 1}),
        ("qwen3_5", {}),
        ("qwen3_next", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mlx_lm_agrees_where_its_cause_is_taken_away(
    tmp_path: Path, family: str, settings: dict[str, Any]
) -> None:
    """And the file is in float32: what mlx-lm folds into weights is rounded to the dtype that they are stored in."""
    directory = drawn(tmp_path / family, family, settings)
    theirs = Transformers(directory).logits(TOKENS)
    assert np.abs(MlxLm(directory).logits(TOKENS) - theirs).max() / np.ptp(theirs) < ENVELOPE


@pytest.mark.parametrize(
    ("family", "settings", "says"),
    [
        ("nemotron_h", {"mlp_hidden_act": "silu"}, "mlp_hidden_act 'silu'"),
        ("nemotron_h", {"hybrid_override_pattern": "M-X", "layers_block_type": ...}, "pattern of layers 'M-X'"),
        ("nemotron_h", {"layers_block_type": ["mlp", "mlp"]}, "no layer remembers"),
        ("nemotron_h", {"layers_block_type": ["linear_attention", "conv"]}, "'conv'"),
        ("granitemoehybrid", {"position_embedding_type": "learned"}, "position_embedding_type 'learned'"),
        ("granitemoehybrid", {"mamba_d_head": 24}, "do not fill"),
        ("mamba2", {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ("lfm2", {"layer_types": ["conv", "conv", "full_attention", "linear_attention"]}, "'linear_attention'"),
        ("qwen3_next", {"linear_num_value_heads": 3}, "no delta net"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, family: str, settings: dict[str, Any], says: str
) -> None:
    directory = tmp_path / family
    shutil.copytree(MODELS / family / "checkpoint", directory)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8")) | settings
    config = {key: value for key, value in config.items() if value is not ...}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(CheckpointError, match=says):
        said(directory, "torch")
