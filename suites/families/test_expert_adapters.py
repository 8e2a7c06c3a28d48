"""Adapters of experts and of what chooses them, as PEFT and mlx-lm save them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from distance import ENVELOPE, apart
from family_oracles import transformers_of
from peft_adapters import adapted_logits
from tiny_checkpoints import MODELS, tokens_of

from paritygate.arms.mlx_lm_model import load_mlx
from tokenline.checkpoint.hugging_face import SafetensorsFile, weight_files
from tokenline.client import Model

GATED = ("gate_proj", "up_proj", "down_proj")
PARTS = {
    "deepseek_v3": (*GATED, "o_proj"),
    "mixtral": ("w1", "w2", "w3"),
    "qwen3_moe": (*GATED, "q_proj"),
    "qwen3_next": GATED,
}
SCALE = 2.0


def published(family: str, directory: Path, rank: int = 3, **settings: Any) -> dict[str, np.ndarray]:
    """An adapter of every expert by its number, as those have it that were trained before experts were stacked. Without
    dense MLPs and shared experts, whose names PEFT takes for the stacked ones."""
    rng, tensors = np.random.default_rng(8), {}
    for path in weight_files(MODELS / family / "checkpoint"):
        file = SafetensorsFile(path)
        for name in file.names():
            module, _, kind = name.rpartition(".")
            part = module.rpartition(".")[2]
            if kind != "weight" or part not in PARTS[family] or (part in GATED and ".experts." not in module):
                continue
            rows, width = file.read(name).shape
            term = f"base_model.model.{module}"
            tensors[f"{term}.lora_A.weight"] = rng.normal(0, 0.2, (rank, width)).astype(np.float32)
            tensors[f"{term}.lora_B.weight"] = rng.normal(0, 0.2, (rows, rank)).astype(np.float32)
            if settings.get("use_dora"):
                tensors[f"{term}.lora_magnitude_vector"] = rng.uniform(1, 2, rows).astype(np.float32)
    directory.mkdir()
    safetensors.numpy.save_file(tensors, directory / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": SCALE * rank}
    config |= {"target_modules": list(PARTS[family]), **settings}
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return tensors


def ours(family: str, backend: str, directory: Path, tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Without the adapter and with it."""
    checkpoint = str(MODELS / family / "checkpoint")
    with Model(checkpoint, backend=backend, dtype="float32", threads=1, adapters={"it": directory}) as model:
        return model.logits(tokens), model.logits(tokens, adapter="it")


@pytest.mark.parametrize("family", PARTS)
def test_numbered_experts_are_what_peft_makes_of_them(family: str, backend: str, tmp_path: Path) -> None:
    checkpoint = MODELS / family / "checkpoint"
    tokens = tokens_of(checkpoint)[:120]
    published(family, tmp_path / "adapter")
    base, adapted = ours(family, backend, tmp_path / "adapter", tokens)
    model = transformers_of(checkpoint).model
    theirs = adapted_logits(copy.deepcopy(model), tmp_path / "adapter", tokens)
    assert apart(base, theirs) > 0.1
    assert apart(adapted, theirs) < ENVELOPE


def test_a_dora_of_experts_is_the_formula(backend: str, tmp_path: Path) -> None:
    """PEFT has none for stacked experts: by hand, in transformers' own matrices."""
    checkpoint = MODELS / "qwen3_moe" / "checkpoint"
    tokens = tokens_of(checkpoint)[:120]
    tensors = published("qwen3_moe", tmp_path / "adapter", use_dora=True)
    model = copy.deepcopy(transformers_of(checkpoint).model)

    def merged(weight: torch.Tensor, module: str) -> None:
        a, b, m = (
            torch.from_numpy(tensors[f"base_model.model.{module}.{part}"]).double()
            for part in ("lora_A.weight", "lora_B.weight", "lora_magnitude_vector")
        )
        changed = weight.double() + SCALE * b @ a
        weight.copy_(m[:, None] * changed / changed.norm(dim=1, keepdim=True))

    with torch.no_grad():
        for index, layer in enumerate(model.model.layers):
            name = f"model.layers.{index}"
            merged(layer.self_attn.q_proj.weight, f"{name}.self_attn.q_proj")
            stacked = getattr(layer.mlp, "experts", None)
            for expert, both in enumerate([] if stacked is None else stacked.gate_up_proj):
                gate, up = both.chunk(2)
                for weight, part in zip((gate, up, stacked.down_proj[expert]), GATED, strict=True):
                    merged(weight, f"{name}.mlp.experts.{expert}.{part}")
        theirs = model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    base, adapted = ours("qwen3_moe", backend, tmp_path / "adapter", tokens)
    assert apart(base, theirs) > 0.1
    assert apart(adapted, theirs) < ENVELOPE


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_what_mlx_lm_adapts_unless_told_otherwise(family: str, backend: str, tmp_path: Path) -> None:
    """Every projection of the last layers: the stacked experts, and the router where it is a projection to mlx-lm.
    DeepSeek's by name: what its attention absorbs takes no adapter."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters

    checkpoint = MODELS / family / "checkpoint"
    tokens = tokens_of(checkpoint)[:120]
    parameters: dict[str, Any] = {"rank": 3, "scale": 1.5, "dropout": 0.0}
    if family == "deepseek_v3":
        parameters["keys"] = ["self_attn.o_proj", *(f"mlp.switch_mlp.{part}" for part in GATED)]
    made = load_mlx(checkpoint, threads=1)
    made.freeze()
    linear_to_lora_layers(made, 2, parameters)
    mx.random.seed(9)
    drawn = {
        name: 0.2 * mx.random.normal(value.shape) for name, value in tree_flatten(made.trainable_parameters())
    }
    assert any("switch_mlp" in name for name in drawn)
    assert any(name.endswith("gate.lora_a") for name in drawn) == (family != "deepseek_v3")
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), drawn)
    config = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    oracle = load_adapters(load_mlx(checkpoint, threads=1), str(tmp_path))
    oracle.eval()
    theirs = np.array(oracle(mx.array([tokens]))[0].astype(mx.float32))
    base, adapted = ours(family, backend, tmp_path, tokens)
    assert apart(base, theirs) > 0.05
    assert apart(adapted, theirs) < ENVELOPE
