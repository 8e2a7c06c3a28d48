"""What each kind of claim needs of an arm, and what an arm that cannot give it is told.

A capability that a claim cannot do without is refused when the policy is read. One that only narrows what is compared
is not: the verdict says what was left out (`paritygate.compare.narrowed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paritygate.arms.base import Arm, Capabilities
from paritygate.policy.claims import (
    AbortClaim,
    BatchClaim,
    BoundClaim,
    CacheClaim,
    Claim,
    EnvelopeClaim,
    GoldenClaim,
    HistoryClaim,
    IdentityClaim,
    PartitionClaim,
)
from paritygate.policy.policy import ArmPolicy

# What a capability is called when it is missing, and why a kind of claim needs it.
GIVES = {
    "token_ids": "token ids",
    "logprobs": "logprobs",
    "teacher_forcing": "teacher-forced logits",
    "raw_logits": "raw logits",
    "pieces": "logits of a text that is cut into forwards",
    "cached_tokens": "the number of tokens that it reused",
    "forgets": "a cold start",
    "seeds": "seeded answers",
    "batches": "several answers at once",
    "aborts": "how many answers are under way once their clients have left",
    "tells_cache": "what its prompt cache holds",
}


# The fields of claims that name cases.
CASE_FIELDS = ("cases", "case", "repeat", "shorter_after_longer", "changed_end", "evicted", "turns")
# Options that change what an arm can give, so that an error shows them.
TELLING = ("url", "command", "dialect", "details", "streamed", "output")


def cases_by_field(claim: Claim) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The claim's keys that name cases, and the cases of each."""
    for field in CASE_FIELDS:
        named = getattr(claim, field, ())
        yield field, (named,) if isinstance(named, str) else named


def named_cases(claim: Claim) -> tuple[str, ...]:
    """Every case that a claim names."""
    return tuple(case for _, cases in cases_by_field(claim) for case in cases)


def envelope_of(claim: Claim) -> str | None:
    """The envelope that a claim is held to; None where it asks for none."""
    if isinstance(claim, EnvelopeClaim | PartitionClaim | BatchClaim):
        return claim.envelope
    return claim.envelope or None if isinstance(claim, GoldenClaim) else None


def described(spec: ArmPolicy) -> str:
    """An arm as an error names it: its kind, and the options that decide what it can give."""
    shown = []
    for key in TELLING:
        value = spec.options.get(key)
        if isinstance(value, bool):
            shown.append(f"{key} {'on' if value else 'off'}")
        elif isinstance(value, str):
            shown.append(f"{key} {value}")
        elif value:
            shown.append(f"a {key} of its own")
    return ", ".join([f"kind {spec.kind}", *shown])


def needs_of(claim: Claim, drawn: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """(capability, why the claim needs it), the most telling first; `drawn` are its cases that draw at random."""
    match claim:
        case HistoryClaim():
            yield "token_ids", "a `history` claim recomputes every draw from the tokens before it"
            yield "raw_logits", "a `history` claim recomputes penalties, which are applied to raw logits"
        case EnvelopeClaim():
            yield "teacher_forcing", "an `envelope` claim compares logits over the goldens' tokens"
        case PartitionClaim():
            yield "token_ids", "a `partition` claim is about the tokens of prompt and answer"
            yield "pieces", "a `partition` claim compares one forward with several"
        case CacheClaim():
            yield "forgets", "a `cache` claim compares with a cold run"
            yield "cached_tokens", "a `cache` claim shows that a hit reused something"
            if claim.shorter_after_longer or claim.changed_end or claim.evicted:
                yield (
                    "token_ids",
                    "`shorter_after_longer`, `changed_end` and `evicted` change the prompt's tokens",
                )
        case GoldenClaim():
            if claim.envelope:
                yield (
                    "logprobs",
                    "a `golden` claim with an `envelope` measures them; leave `envelope` out to compare what was said",
                )
            if claim.promise == "decided":
                yield "teacher_forcing", "a `decided` promise re-anchors near-ties on the golden's tokens"
        case BatchClaim():
            yield "batches", "a `batch` claim asks its cases at once"
            yield "forgets", "a `batch` claim compares with rows that ran alone and cold"
        case AbortClaim():
            yield "aborts", "an `abort` claim leaves answers early and looks for what stays behind"
        case BoundClaim():
            yield "tells_cache", "a `bound` claim reads it after every prompt"
            yield "forgets", "a `bound` claim begins with an empty cache"
    if drawn and isinstance(claim, IdentityClaim | CacheClaim | BatchClaim):
        yield "seeds", f"case {drawn[0]} draws at random, and another answer would prove nothing"


def lacking(claim: Claim, given: Capabilities, drawn: Sequence[str] = ()) -> tuple[str, str] | None:
    """The first thing that the claim needs and the arm cannot give: what it is called, and why it is needed."""
    return next(
        ((GIVES[name], why) for name, why in needs_of(claim, drawn) if not getattr(given, name)), None
    )


def settings_apart(one: Arm, other: Arm) -> str:
    """The settings that the options of two arms alone make differ, "" for none; a kind that tells none may differ."""
    ours, theirs = (getattr(arm, "settings", {}) for arm in (one, other))
    differing = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    return ", ".join(f"{name} is {ours[name]!r} and {theirs[name]!r}" for name in differing)
