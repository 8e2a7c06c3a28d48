"""Other engines measured in the same run as ours: transformers and mlx-lm, at their best, under the same clock.

Each decodes greedily over a cache with no more around it than it needs, so that what is compared is the model's
step and not a convenience wrapper: transformers step by step with the argmax on its tensor, mlx-lm through its own
pipelined `generate_step`.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from paritygate.arms.base import ArmError
from paritygate.arms.hugging_face import load_model
from paritygate.arms.mlx_lm_model import load_mlx
from paritygate.case import Case
from paritygate.stream import Stream


class PeerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`directory` is the checkpoint as a Hugging Face directory, which mlx-lm reads; threads as ours."""

    dtype: str
    threads: int
    directory: str = ""


class _Peer(abc.ABC):
    """What the measuring process asks of an arm, over a loop of token ids."""

    name: ClassVar[str]

    def __init__(self, options: PeerOptions, model: str) -> None:
        self.options = options
        self.checkpoint = Path(model)
        self.weight_bytes = 0

    @abc.abstractmethod
    def open(self) -> None:
        """Load the model."""

    @abc.abstractmethod
    def tokens(self, prompt: tuple[int, ...], count: int) -> Iterator[int]:
        """Greedy token ids, each as it is read."""

    def generate(self, case: Case) -> Stream:
        """One greedy answer, timed as ours is: a token has arrived when its id is known here."""
        prompt = case.prompt_token_ids
        if prompt is None:
            raise ArmError(f"{self.name} is measured over token ids: name a golden in [bench] case")
        arrivals: list[int] = []
        ids: list[int] = []
        started = time.perf_counter_ns()
        for token in self.tokens(prompt, case.max_tokens):
            arrivals.append(time.perf_counter_ns() - started)
            ids.append(token)
        return Stream(
            case=case.name,
            arm=self.name,
            text="",
            prompt_token_ids=prompt,
            token_ids=tuple(ids),
            arrivals_ns=tuple(arrivals),
            finish_reason="length",
            manifest={
                "engine": self.name,
                "backend": self.name,
                "dtype": self.options.dtype,
                "threads": self.options.threads,
                "weight_bytes": self.weight_bytes,
            },
        )

    def reset(self) -> None:  # noqa: B027 (every peer starts from nothing)
        """Nothing is remembered between answers."""

    def close(self) -> None:  # noqa: B027
        """The process ends with the measurement."""


class Transformers(_Peer):
    """transformers on torch."""

    name = "transformers"

    def open(self) -> None:
        import torch

        self._torch = torch
        options = self.options
        self._model = load_model(self.checkpoint, dtype=options.dtype, threads=options.threads)
        self.weight_bytes = sum({p.data_ptr(): p.nbytes for p in self._model.parameters()}.values())

    def tokens(self, prompt: tuple[int, ...], count: int) -> Iterator[int]:
        torch = self._torch
        past: Any = None
        feed = torch.tensor([prompt])
        with torch.inference_mode():
            for _ in range(count):
                out = self._model(feed, past_key_values=past, use_cache=True, logits_to_keep=1)
                past = out.past_key_values
                feed = out.logits[:, -1].argmax(-1, keepdim=True)
                yield int(feed)


class MlxLm(_Peer):
    """mlx-lm on MLX, with the same BLAS as ours."""

    name = "mlx-lm"

    def open(self) -> None:
        options = self.options
        self._model = load_mlx(Path(options.directory), threads=options.threads, dtype=options.dtype)
        import mlx.core as mx
        from mlx.utils import tree_flatten

        self._mx = mx
        arrays: Any = tree_flatten(self._model.parameters())
        self.weight_bytes = sum(array.nbytes for _, array in arrays)

    def tokens(self, prompt: tuple[int, ...], count: int) -> Iterator[int]:
        from mlx_lm.generate import generate_step

        steps = generate_step(self._mx.array(prompt), self._model, max_tokens=count)
        return (int(token) for token, _ in steps)


PEERS: dict[str, type[Transformers] | type[MlxLm]] = {peer.name: peer for peer in (Transformers, MlxLm)}


def make_peer(kind: str, options: dict[str, Any], model: str) -> Transformers | MlxLm:
    """A peer by name, not loaded yet."""
    return PEERS[kind](msgspec.convert(options, PeerOptions), model)
