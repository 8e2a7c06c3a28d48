"""The oracles, teacher-forced, and what is known of them: where one of them is wrong, and why."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from paritygate.arms.mlx_lm_model import load_mlx

# Families of which mlx-lm says something else than transformers, by more than rounding, and what was found.
# A test asserts that it still does: where a version has mended it, the entry goes.
MLX_LM_DIFFERS: dict[str, str] = {
    "gemma2": "mlx-lm has one causal mask for all layers and reads no sliding_window. transformers is right: every "
    "other layer attends to the last 4096 tokens (Gemma 2 report, section 2; the published configuration). Up to "
    "that length both say the same.",
    "mistral": "mlx-lm loads it as a llama, whose layers slide only where layer_types says so, and published Mistral "
    "configurations have none. transformers is right: every layer attends to the last sliding_window tokens "
    "(Mistral 7B paper, section 2).",
}
# What makes transformers say what mlx-lm says of these, where that shows the cause.
AS_MLX_LM_READS: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window": 1024},
    "mistral": {"sliding_window": None},
}

# Families that transformers does not have, and the one of its own that is the same function of the same file.
TRANSFORMERS_LACKS: dict[str, str] = {
    # A Granite whose multipliers are MiniCPM's: the residual one scale_depth over the root of the depth, the logits
    # divided by width over dim_model_base. The file keeps both families' keys; mlx-lm reads MiniCPM's.
    "minicpm": "granite",
}


class Transformers:
    """`changes` are keys of the configuration that it is to read otherwise than the file says."""

    def __init__(self, checkpoint: Path, **changes: Any) -> None:
        said = json.loads((checkpoint / "config.json").read_text(encoding="utf-8")) | changes
        family = said.pop("model_type")
        config = transformers.AutoConfig.for_model(TRANSFORMERS_LACKS.get(family, family), **said)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint, config=config, dtype=torch.float32, attn_implementation="eager"
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
