"""What a tiny checkpoint is made of.

`config` is given to transformers' configuration class of that `model_type`. `published` are keys that go into
config.json besides, as published configurations write them and as engines other than transformers 5 read them.
`noise` is the standard deviation of what starts near zero and would stay there, by the end of its name. `packed` turns
a weight into what the published checkpoints store of it, by its name; an empty answer leaves it as it is. `inside` is
the model type of the published checkpoints that hold this one as their language model, where names that begin as the
first of `named` begin as the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Tiny:
    model_type: str
    config: dict[str, Any]
    published: dict[str, Any] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    packed: Callable[[str, torch.Tensor], dict[str, torch.Tensor]] = lambda name, value: {}
    inside: str | None = None
    named: tuple[str, str] = ("model.", "model.language_model.")
    steps: int = 300
    rate: float = 4e-3
    sequence: int = 256
    batch: int = 6


# What most share: a width that divides into heads of 16, grouped queries, room for a long prompt.
DENSE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
}
