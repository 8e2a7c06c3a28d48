"""The [bench] table of a policy: what is timed, how sure a verdict must be, and what it may cost."""

from __future__ import annotations

import msgspec

from paritygate.bench.observation import FIGURES
from paritygate.quantities import Alpha, Count, Margin, Natural, Seconds, Threads, Tokens


class BenchPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the performance gate, fixed before anything is measured.

    A figure is slower when its time ratio to the base exceeds `1 + margin` (`margins` has its own, by figure)
    with confidence `1 - alpha`, shared among the figures and the looks at the data. Margins come from
    `paritygate bench calibrate` on the same class of machine. `case` names the golden that is decoded, so
    that a sample with other tokens is void; without one the samples are held against each other. `threads=1`
    keeps a busy neighbour on another core out of the measurement. A round is base, head, head, base or the
    reverse; seconds bound one session.
    """

    case: str = ""
    backend: str = "torch"
    dtype: str = "auto"
    threads: Threads = 1
    prompt_tokens: Tokens = 512
    decode_tokens: Tokens = 32
    warmup_tokens: Natural = 8
    margin: Margin = 0.08
    margins: dict[str, Margin] = msgspec.field(default_factory=dict)
    alpha: Alpha = 0.05
    min_rounds: Count = 2
    max_rounds: Count = 4
    session_seconds: Seconds = 125.0

    def __post_init__(self) -> None:
        if unknown := self.margins.keys() - FIGURES.keys():
            raise ValueError(f"bench margins: there is no figure {min(unknown)!r}: use {', '.join(FIGURES)}")
        if self.min_rounds > self.max_rounds:
            raise ValueError(
                f"bench rounds: min_rounds {self.min_rounds} is above max_rounds {self.max_rounds}"
            )

    def margin_of(self, figure: str) -> float:
        """How much slower a figure may be."""
        return self.margins.get(figure, self.margin)
