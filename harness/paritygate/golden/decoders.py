"""The models of the oracles, one token at a time and in one forward."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from paritygate.arms.hugging_face import load_model
from paritygate.arms.mlx_lm_model import load_mlx


class Decoder(Protocol):
    """A model that answers one token at a time."""

    def begin(self) -> None: ...

    def next_logits(self, token_ids: list[int]) -> np.ndarray:
        """Feeds ids after those that were fed since `begin`; the last row, float32 [V]."""
        ...

    def whole_logits(self, token_ids: list[int]) -> np.ndarray:
        """The last row of one forward over all ids, without anything remembered."""
        ...


class TransformersDecoder:
    """transformers in float32, reading the GGUF itself."""

    def __init__(self, checkpoint: Path, threads: int) -> None:
        self.model = load_model(checkpoint, threads=threads)
        import torch

        self._torch = torch
        self._past: Any = None
        self._fed: list[int] = []
        # A state space alone keeps its state under another name, which differs by version: it is run anew each time.
        self._steps = "past_key_values" in inspect.signature(self.model.forward).parameters

    def begin(self) -> None:
        self._past, self._fed = None, []

    def next_logits(self, token_ids: list[int]) -> np.ndarray:
        self._fed = [*self._fed, *token_ids]
        if not self._steps:
            return self.whole_logits(self._fed)
        with self._torch.inference_mode():
            out = self.model(
                self._torch.tensor([token_ids]), past_key_values=self._past, use_cache=True, logits_to_keep=1
            )
        self._past = out.past_key_values
        return out.logits[0, -1].numpy()

    def whole_logits(self, token_ids: list[int]) -> np.ndarray:
        with self._torch.inference_mode():
            return self.model(self._torch.tensor([token_ids]), use_cache=False).logits[0, -1].numpy()


class MlxLmDecoder:
    """mlx-lm in float32 over the directory that transformers saved from the GGUF."""

    def __init__(self, directory: Path, threads: int) -> None:
        self.model = load_mlx(directory, threads=threads)
        import mlx.core as mx
        from mlx_lm.models.cache import make_prompt_cache

        self._mx = mx
        self._make_cache = make_prompt_cache
        self._cache: Any = None

    def begin(self) -> None:
        self._cache = self._make_cache(self.model)

    def next_logits(self, token_ids: list[int]) -> np.ndarray:
        return self._last(self.model(self._mx.array([token_ids]), cache=self._cache))

    def whole_logits(self, token_ids: list[int]) -> np.ndarray:
        return self._last(self.model(self._mx.array([token_ids]), cache=self._make_cache(self.model)))

    def _last(self, logits: Any) -> np.ndarray:
        return np.array(logits[0, -1].astype(self._mx.float32))
