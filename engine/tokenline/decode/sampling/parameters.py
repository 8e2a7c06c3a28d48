"""What the stages read of each row."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from tokenline.decode.sampling.breakers import Breakers, BreakerTable
from tokenline.request import Request, Sampling
from tokenline.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class RowParameters:
    """One row's sampler: its settings, the seed that was drawn if none was given, and the logprobs it reports; and
    what the settings mean for one tokenizer: its end-of-sequence tokens and the DRY breakers as tokens."""

    sampling: Sampling
    seed: int
    top_logprobs: int | None
    raw_logprobs: bool = False
    eos_token_ids: frozenset[int] = frozenset()
    breakers: Breakers = field(default_factory=dict)

    @classmethod
    def of(cls, request: Request, tokenizer: Tokenizer, table: BreakerTable) -> Self:
        s = request.sampling
        return cls(
            sampling=s,
            seed=secrets.randbits(32) if s.seed is None else s.seed,
            top_logprobs=request.logprobs,
            raw_logprobs=request.logprobs_mode == "raw",
            eos_token_ids=tokenizer.eos_token_ids,
            breakers=table.breakers(s.dry_breakers) if "dry" in s.active else {},
        )

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """What does something, in the order asked for."""
        active = self.sampling.active
        return tuple(stage for stage in self.sampling.order if stage in active)

    @cached_property
    def needs_history(self) -> bool:
        return self.sampling.needs_history

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature == 0


@dataclass(frozen=True)
class RowDraw:
    """One row at one draw. `position` is the index that the token will have in the row's text, `history` all tokens
    before it, prompt included; `mu` is mirostat's bound on the surprise, None for a row at its start; `mask`, bool
    [vocabulary], is what the row's grammar allows here, None where it has none."""

    parameters: RowParameters
    position: int
    history: Sequence[int] = ()
    mu: float | None = None
    mask: np.ndarray | None = None

    @property
    def sampling(self) -> Sampling:
        return self.parameters.sampling
