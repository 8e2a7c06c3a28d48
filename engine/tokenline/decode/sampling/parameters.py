"""What the stages read of each row."""

from __future__ import annotations

from dataclasses import dataclass

from tokenline.request import Sampling


@dataclass(frozen=True)
class RowParameters:
    """One row's sampler: its settings, the seed that was drawn if none was given, and the logprobs it reports."""

    sampling: Sampling
    seed: int
    top_logprobs: int | None

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature == 0

    @property
    def truncates(self) -> bool:
        s = self.sampling
        return s.top_k > 0 or s.top_p < 1 or s.min_p > 0
