"""The tiny checkpoints' architectures: what a family's published configuration says, at toy size."""

from architectures.dense import DENSE_FAMILIES
from architectures.experts import EXPERT_FAMILIES
from architectures.recurrent import RECURRENT_FAMILIES
from architectures.tiny import Tiny

FAMILIES: dict[str, Tiny] = {**DENSE_FAMILIES, **EXPERT_FAMILIES, **RECURRENT_FAMILIES}

__all__ = ["FAMILIES", "Tiny"]
