"""Where mlx-lm says something else than transformers, the cause is the one that is told: read as mlx-lm reads it, the
checkpoint says the same there."""

from __future__ import annotations

import numpy as np
import pytest
from distance import ENVELOPE, apart
from family_oracles import AS_MLX_LM_READS, Transformers, mlx_lm_of
from tiny_checkpoints import MODELS, tokens_of

from tokenline.client import Model


@pytest.mark.parametrize("family", sorted(AS_MLX_LM_READS))
def test_the_cause_is_the_one_that_is_told(family: str) -> None:
    checkpoint = MODELS / family / "checkpoint"
    tokens = tokens_of(checkpoint)
    changed = Transformers(checkpoint, **AS_MLX_LM_READS[family]).logits(tokens)
    assert apart(mlx_lm_of(checkpoint).logits(tokens), changed) < ENVELOPE


@pytest.mark.parametrize("family", sorted(AS_MLX_LM_READS))
def test_within_the_window_mlx_lm_agrees(family: str, backend: str) -> None:
    """The oracle that is left of it."""
    checkpoint = MODELS / family / "checkpoint"
    tokens = tokens_of(checkpoint)[:48]
    with Model(str(checkpoint), backend=backend, dtype="float32", threads=1) as model:
        mine = model.logits(tokens)
    assert np.isfinite(mine).all()
    assert apart(mine, mlx_lm_of(checkpoint).logits(tokens)) < ENVELOPE
