"""The tiny checkpoints of golden/models, and the tokens that families are compared on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenline.checkpoint.open import open_checkpoint
from tokenline.models import FAMILIES

MODELS = Path(__file__).parents[2] / "golden" / "models"
NAMES = sorted(path.parent.name for path in MODELS.glob("*/checkpoint"))
TEXT = (MODELS / "corpus.txt").read_text(encoding="utf-8")


def tokens_of(checkpoint: Path) -> list[int]:
    """300 tokens: what the checkpoint knows by heart, then what it has never seen."""
    ids = open_checkpoint(str(checkpoint), FAMILIES).text.tokenizer.encode(TEXT)
    strange = np.random.default_rng(5).integers(3, 259, 80)
    return [*ids[:220], *(int(token) for token in strange)]
