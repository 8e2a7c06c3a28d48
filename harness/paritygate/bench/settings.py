"""The [bench] table of a policy: what is timed, how sure a verdict must be, and what it may cost."""

from __future__ import annotations

import msgspec

from paritygate.bench.observation import FIGURES


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
    threads: int = 1
    prompt_tokens: int = 512
    decode_tokens: int = 32
    warmup_tokens: int = 8
    margin: float = 0.08
    margins: dict[str, float] = msgspec.field(default_factory=dict)
    alpha: float = 0.05
    min_rounds: int = 2
    max_rounds: int = 4
    session_seconds: float = 125.0

    def __post_init__(self) -> None:
        for margin in (self.margin, *self.margins.values()):
            if not 0 < margin < 1:
                raise ValueError(f"bench margin {margin} is outside (0, 1)")
        if unknown := self.margins.keys() - FIGURES.keys():
            raise ValueError(f"bench margins: there is no figure {min(unknown)!r}: use {', '.join(FIGURES)}")
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"bench alpha {self.alpha} is outside (0, 0.5)")
        if not 1 <= self.min_rounds <= self.max_rounds:
            raise ValueError(f"bench rounds {self.min_rounds} to {self.max_rounds} are not a range from 1")
        if min(self.prompt_tokens, self.decode_tokens, self.threads) < 1 or self.warmup_tokens < 0:
            raise ValueError(
                "bench prompt_tokens, decode_tokens and threads are at least 1, warmup_tokens at least 0"
            )

    def margin_of(self, figure: str) -> float:
        """How much slower a figure may be."""
        return self.margins.get(figure, self.margin)
