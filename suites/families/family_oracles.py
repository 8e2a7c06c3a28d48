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
    "gpt_oss": "The published configuration says that yarn's ramp begins and ends between dimensions (rope_scaling's "
    'truncate is false). mlx-lm does not read that key and rounds both ends to whole dimensions; with "truncate": true '
    "all three agree. transformers does as OpenAI's reference code, which never rounds them.",
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
