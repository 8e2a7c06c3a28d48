"""What a policy can promise: each kind of claim a type."""

from __future__ import annotations

from typing import Literal

from paritygate.policy.table import Table
from paritygate.quantities import Bytes, Count, Natural, Seconds, Tokens
from paritygate.verdict import Verdict


class GoldenClaim(Table, frozen=True, kw_only=True, tag_field="kind", tag="golden"):
    """Each arm says what the goldens say; `cases` narrows it, none means all of them.

    `promise` "decided" lets a near-tie go either way. With an `envelope`, logprobs lie within its `max_abs_logit`.
    """

    arms: tuple[str, ...]
    envelope: str = ""
    cases: tuple[str, ...] = ()
    promise: Literal["identical", "decided"] = "identical"

    @property
    def passing(self) -> tuple[Verdict, ...]:
        """The verdicts that keep the promise."""
        return (Verdict.IDENTICAL,) if self.promise == "identical" else (Verdict.IDENTICAL, Verdict.TIE_BREAK)


class IdentityClaim(Table, frozen=True, kw_only=True, tag_field="kind", tag="identity"):
    """The arms say the same thing, byte for byte; the first is the reference."""

    arms: tuple[str, ...]
    cases: tuple[str, ...]


# Tokens of a prompt that is cut: less leaves nothing to reuse.
SHORTEST = 3


class CacheClaim(Table, frozen=True, kw_only=True, tag_field="kind", tag="cache"):
    """Cold, hit and second hit are identical, and the hits did reuse tokens.

    `repeat` cases run three times. A `turns` case runs up to its last but one user message, then whole. A
    `shorter_after_longer` case runs whole, then cut to `shorter_tokens`; a `changed_end` case runs cut to as many, then
    with another token just before its last, where a state that is adopted one token too far is wrong. An `evicted` case
    runs, `crowd` prompts of its length that begin otherwise push it out of the cache, and it runs twice more.
    """

    arms: tuple[str, ...]
    repeat: tuple[str, ...]
    shorter_after_longer: tuple[str, ...] = ()
    changed_end: tuple[str, ...] = ()
    shorter_tokens: Natural = 0
    evicted: tuple[str, ...] = ()
    crowd: Natural = 0
    turns: tuple[str, ...] = ()
    max_tokens: Tokens = 16

    def __post_init__(self) -> None:
        for key in ("shorter_after_longer", "changed_end"):
            if getattr(self, key) and self.shorter_tokens < SHORTEST:
                raise ValueError(
                    f"{key} needs `shorter_tokens`, {SHORTEST} or more: how much is kept of the prompt"
                )
        if self.evicted and not self.crowd:
            raise ValueError("evicted needs `crowd`, 1 or more: prompts that push it out")


# How the cache gate names what it makes of a case, by the claim's key.
CACHE_SCENARIOS = {
    "repeat": "{case}",
    "turns": "{case}-next-turn",
    "shorter_after_longer": "{case}-shorter-after-longer",
    "changed_end": "{case}-changed-end",
    "evicted": "{case}-evicted",
}


def cache_scenario(key: str, case: str) -> str:
    """The name of one scenario of a cache claim."""
    return CACHE_SCENARIOS[key].format(case=case)


class EnvelopeClaim(Table, frozen=True, kw_only=True, tag_field="kind", tag="envelope"):
    """Teacher-forced logits of the second arm lie within a registered envelope of the first's."""

    arms: tuple[str, str]
    cases: tuple[str, ...]
    envelope: str


class PartitionClaim(Table, frozen=True, kw_only=True, tag_field="kind", tag="partition"):
    """However a text is cut into forwards, its logits are the same: each arm is asked for the cases, then forced over
    prompt and answer in one forward and in pieces of every size, and stays within the envelope. A size of 1 is token by
    token; one above a sliding window is a piece that the window does not hold."""

    arms: tuple[str, ...]
    cases: tuple[str, ...]
    sizes: tuple[Tokens, ...]
    envelope: str

    def __post_init__(self) -> None:
        if not self.sizes:
            raise ValueError("`sizes` is empty: name at least one size of a piece")


class HistoryClaim(Table, frozen=True, kw_only=True, tag_field="kind", tag="history"):
    """Penalties see every token up to the last one: each arm's answer follows a recomputation from its raw logits."""

    arms: tuple[str, ...]
    cases: tuple[str, ...]


class BatchClaim(Table, frozen=True, kw_only=True, tag_field="kind", tag="batch"):
    """A row says in a batch what it says alone: same ids, text and ending, logprobs within the envelope.

    The cases are asked one by one, then all at once; those of unequal length show padding, those with a seed of their
    own show whose draw it was.
    """

    arms: tuple[str, ...]
    cases: tuple[str, ...]
    envelope: str


class AbortClaim(Table, frozen=True, kw_only=True, tag_field="kind", tag="abort"):
    """Clients that leave early leave nothing behind: after `times` answers left at their first piece, none of them is
    under way `within_s` later, and the next one says what it said before."""

    arms: tuple[str, ...]
    case: str
    times: Count = 20
    within_s: Seconds = 1.0


class BoundClaim(Table, frozen=True, kw_only=True, tag_field="kind", tag="bound"):
    """The prompt cache stays within `limit_bytes`, which the arm's own options set, while the cases fill it."""

    arms: tuple[str, ...]
    cases: tuple[str, ...]
    limit_bytes: Bytes


Claim = (
    GoldenClaim
    | IdentityClaim
    | CacheClaim
    | EnvelopeClaim
    | PartitionClaim
    | HistoryClaim
    | BatchClaim
    | AbortClaim
    | BoundClaim
)
