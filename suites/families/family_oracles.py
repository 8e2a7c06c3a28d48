"""The oracles, teacher-forced, and what is known of them: where one of them is wrong, and why."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from paritygate.arms.mlx_lm_model import load_mlx

sys.path.insert(0, str(Path(__file__).parents[2] / "golden" / "models"))
from findings import AS_MLX_LM_READS, MLX_LM_DIFFERS, TRANSFORMERS_DIFFERS, TRANSFORMERS_LACKS

__all__ = [
    "AS_MLX_LM_READS",
    "MLX_LM_DIFFERS",
    "TRANSFORMERS_DIFFERS",
    "TRANSFORMERS_LACKS",
    "MlxLm",
    "Transformers",
    "mlx_lm_of",
    "transformers_of",
]


class Transformers:
    """`changes` are keys of the configuration that it is to read otherwise than the file says."""

    def __init__(self, checkpoint: Path, **changes: Any) -> None:
        said = json.loads((checkpoint / "config.json").read_text(encoding="utf-8")) | changes
        family = said.pop("model_type")
        config = transformers.AutoConfig.for_model(TRANSFORMERS_LACKS.get(family, family), **said)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint, config=config, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    def logits(self, tokens: list[int]) -> np.ndarray:
        with torch.inference_mode():
            return self.model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


class MlxLm:
    def __init__(self, checkpoint: Path) -> None:
        self._model = load_mlx(checkpoint, threads=1)

    def logits(self, tokens: list[int]) -> np.ndarray:
        import mlx.core as mx

        return np.array(self._model(mx.array([tokens]))[0].astype(mx.float32))


@functools.lru_cache(maxsize=2)
def transformers_of(checkpoint: Path) -> Transformers:
    """As it stands for the family."""
    _, changes = TRANSFORMERS_DIFFERS.get(checkpoint.parent.name, ("", {}))
    return Transformers(checkpoint, **changes)


@functools.lru_cache(maxsize=1)
def mlx_lm_of(checkpoint: Path) -> MlxLm:
    return MlxLm(checkpoint)
