"""The oracles, teacher-forced, and what is known of them: where one of them is wrong, and why."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from paritygate.arms.mlx_lm_model import load_mlx

# Families of which mlx-lm says something else than transformers, by more than rounding, and what was found.
# A test asserts that it still does: where a version has mended it, the entry goes.
MLX_LM_DIFFERS: dict[str, str] = {
    "falcon_h1": "mlx-lm multiplies weights as it loads them and looks for key_proj, a name that no checkpoint has, so "
    "that key_multiplier is lost; transformers, where its authors published the family, multiplies the keys. The "
    "products are rounded to the dtype of the file besides, which moves logits of a float16 one by 2e-4 of the range.",
    "mamba2": "mlx-lm norms the gated output as one vector, whatever n_groups says. The published code (mamba_ssm's "
    "RMSNormGated, with a group_size of d_ssm / ngroups) and transformers norm every group by itself; with one group "
    "all agree.",
    "qwen3_5": "mlx-lm adds the one to norms that are stored around zero in the dtype of the file, and so rounds them; "
    "transformers adds it in float32, as the published code does. With a file in float32 both agree.",
    "qwen3_next": "As qwen3_5; a norm that is rounded sends some tokens to other experts besides.",
    "gpt_oss": "The published configuration says that yarn's ramp begins and ends between dimensions (rope_scaling's "
    'truncate is false). mlx-lm does not read that key and rounds both ends to whole dimensions; with "truncate": true '
    "all three agree. transformers does as OpenAI's reference code, which never rounds them.",
}

# Families of which transformers itself says something else than the published code: what was found, and what it is
# told instead of the file so that it stands for the family. A test asserts that it is needed; mlx-lm then agrees.
TRANSFORMERS_DIFFERS: dict[str, tuple[str, dict[str, Any]]] = {
    "nemotron_h": (
        "transformers limits a step's length from below by time_step_min (0.001), a bound of the initialization. The "
        "published code and mlx-lm limit it by time_step_limit, in the published configurations 0 to infinity.",
        {"time_step_min": 0.0},
    ),
}


class Transformers:
    """`changes` are keys of the configuration that it is to read otherwise than the file says."""

    def __init__(self, checkpoint: Path, **changes: Any) -> None:
        config = transformers.AutoConfig.from_pretrained(checkpoint)
        for key, value in changes.items():
            setattr(config, key, value)
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
    """As it stands for the family."""
    _, changes = TRANSFORMERS_DIFFERS.get(checkpoint.parent.name, ("", {}))
    return Transformers(checkpoint, **changes)


@functools.lru_cache(maxsize=1)
def mlx_lm_of(checkpoint: Path) -> MlxLm:
    return MlxLm(checkpoint)
