"""Forwards over tokens that somebody else chose: nothing is drawn, and no row is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenline.cache import LayerCache
from tokenline.checkpoint.adapters import Adapters
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.models import Model
from tokenline.ops import Array, Ops


class Teacher:
    """The network alone, on the thread that calls. An adapter is named, "" for the model's own weights."""

    def __init__(self, ops: Ops, model: Model, adapters: Adapters) -> None:
        self._ops, self._model, self._adapters = ops, model, adapters
        self.forwards = 0  # that `logits` ran

    def logits(self, tokens: Sequence[int], plan: PrefillPlan, adapter: str) -> np.ndarray:
        """One forward for each piece of the plan: float32 [tokens, V]."""
        caches, parts = self.new_caches(), []
        for piece in plan.pieces():
            with self._adapters.using(adapter):
                hidden = self._model.hidden(self._ids(tokens[piece.start : piece.stop]), caches)
                logits = self._model.logits(hidden)
            parts.append(self._read([logits])[0])
            self.forwards += 1
        return np.concatenate(parts)

    def new_caches(self) -> list[LayerCache]:
        return self._model.new_caches()

    def hidden(self, tokens: Sequence[int], caches: Sequence[LayerCache], adapter: str) -> np.ndarray:
        """The next tokens' last states, after the final norm, appended to the caches: float32 [tokens, width]."""
        with self._adapters.using(adapter):
            hidden = self._model.hidden(self._ids(tokens), caches)
        return self._read([hidden])[0]

    def taps(self, tokens: Sequence[int], adapter: str) -> dict[str, np.ndarray]:
        """One forward, every block's array by name, in order: float32 [tokens, width]; the head last."""
        with self._adapters.using(adapter):
            named = list(self._model.blocks(self._ids(tokens), self.new_caches()))
            named.append(("head", self._model.logits(named[-1][1])))
        read = self._read([array for _, array in named])
        return {name: array for (name, _), array in zip(named, read, strict=True)}

    def _ids(self, tokens: Sequence[int]) -> Array:
        return self._ops.array(np.asarray([list(tokens)]))

    def _read(self, arrays: Sequence[Array]) -> list[np.ndarray]:
        """Of a lone row, [tokens, ...] each."""
        return [array[0] for array in self._ops.read([self._ops.to_float32(each) for each in arrays])]
