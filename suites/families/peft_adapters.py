"""Adapters made and run by PEFT over transformers: the oracle of what an adapter does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers

# What PEFT does not adapt as a projection: the way out of a state space, whose kernels take weights past the module,
# a router that says two things, and names that it takes for the experts' matrices.
_LEFT = {
    **dict.fromkeys(("falcon_h1", "mamba2", "nemotron_h"), ("out_proj",)),
    "llama4_text": ("router",),
    **dict.fromkeys(("deepseek_v3", "qwen3_moe", "qwen3_next"), ("gate_proj", "up_proj", "down_proj")),
}


def projections(model: transformers.PreTrainedModel) -> str:
    """What an adapter of ours may change, as an expression: every linear module but the head, and what latent attention
    absorbs."""
    left = ("lm_head", "kv_b_proj", *_LEFT.get(model.config.model_type, ()))
    return "|".join(
        re.escape(name)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name.rpartition(".")[2] not in left
    )


def save_adapter(model: transformers.PreTrainedModel, directory: Path, seed: int, **settings: Any) -> Path:
    """As PEFT writes it: every matrix drawn, none at the zero where training begins. The model stays as it was."""
    made = peft.get_peft_model(model, peft.LoraConfig(**settings))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "magnitude" in name:
                parameter.mul_(1 + 0.2 * torch.rand(parameter.shape, generator=generator))
            elif "lora_" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    made.save_pretrained(directory)
    made.unload()
    return directory


def save_adapters(
    model: transformers.PreTrainedModel, directory: Path, asked: Mapping[str, Mapping[str, Any]]
) -> dict[str, Path]:
    """Each by its name, from a seed of its own."""
    return {
        name: save_adapter(model, directory / name, seed, **settings)
        for seed, (name, settings) in enumerate(asked.items())
    }


def adapted_logits(model: transformers.PreTrainedModel, directory: Path, tokens: list[int]) -> np.ndarray:
    """What PEFT says with the adapter, float32 [tokens, V]."""
    adapted = peft.PeftModel.from_pretrained(model, directory).eval()
    with torch.inference_mode():
        said = adapted(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()
    adapted.unload()
    return said
