"""A family below the engine: the array surface and the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenline.cache import LayerCache
from tokenline.models import Model as Network
from tokenline.ops import Ops


@dataclass(frozen=True)
class Below:
    ops: Ops
    network: Network

    def filled(self, prompt: list[int]) -> list[LayerCache]:
        """The state after the prompt in one forward."""
        caches = self.network.new_caches()
        self.network.hidden(self.ops.array(np.asarray([prompt])), caches)
        return caches

    def steps(self, caches: list[LayerCache], columns: list[list[int]]) -> np.ndarray:
        """Each column is the next token of every row: float32 [steps, rows, V]."""
        said = [
            self.network.logits(self.network.hidden(self.ops.array(np.asarray(column)[:, None]), caches))
            for column in columns
        ]
        return np.stack([self.ops.read([part])[0][:, 0] for part in said])
