"""The oracles, teacher-forced, and what is known of them: where one of them is wrong, and why."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch
import transformers

from paritygate.arms.mlx_lm_model import load_mlx

# Families of which mlx-lm says something else than transformers, by more than rounding, and what was found.
# A test asserts that it still does: where a version has mended it, the entry goes.
MLX_LM_DIFFERS: dict[str, str] = {
    "mamba2": "mlx-lm norms the gated output as one vector, whatever n_groups says. The published code (mamba_ssm's "
    "RMSNormGated, with a group_size of d_ssm / ngroups) and transformers norm every group by itself; with one group "
    "all agree.",
}


class Transformers:
    def __init__(self, checkpoint: Path) -> None:
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    def logits(self, tokens: list[int]) -> np.ndarray:
        with torch.inference_mode():
            return self._model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


class MlxLm:
    def __init__(self, checkpoint: Path) -> None:
        self._model = load_mlx(checkpoint, threads=1)

    def logits(self, tokens: list[int]) -> np.ndarray:
        import mlx.core as mx

        return np.array(self._model(mx.array([tokens]))[0].astype(mx.float32))


@functools.lru_cache(maxsize=2)
def transformers_of(checkpoint: Path) -> Transformers:
    return Transformers(checkpoint)


@functools.lru_cache(maxsize=1)
def mlx_lm_of(checkpoint: Path) -> MlxLm:
    return MlxLm(checkpoint)
