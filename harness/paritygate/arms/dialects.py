"""What servers of OpenAI's interface call the fields that OpenAI has no word for, and what they leave out."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from paritygate.arms.base import ArmError
from paritygate.case import Case

DialectName = Literal["openai", "tokenline", "llama.cpp", "mlx-lm", "vllm"]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of server.

    `fields` maps a sampler field of a case to the server's names; one that is not in it cannot be said there.
    `tells_ids` is whether every whole answer can be had with its token ids, `counts_end` whether the usage counts the
    end-of-sequence token (None where it is not known), `legacy_logprobs` whether /v1/completions takes a number.
    """

    fields: dict[str, tuple[str, ...]]
    asks: dict[str, Any] = {}
    tells_ids: bool = False
    takes_ids: bool = True
    counts_end: bool | None = None
    legacy_logprobs: bool = True
    streams_logprobs: bool = True
    constrains: bool = False  # whether it takes a case's constraint by the names that the case uses
    ignores_end: bool = False  # whether it can be told to go on past an end of sequence
    spells_pieces: bool = False  # whether tokens are told as the vocabulary spells them, not as text
    endless_window: bool = False  # whether a penalty window below zero means everything


def _same(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names}


_OPENAI = _same("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed")
_LOCAL = _OPENAI | _same("top_k", "min_p")

DIALECTS: dict[str, Dialect] = {
    "openai": Dialect(fields=_OPENAI),
    "tokenline": Dialect(
        fields=_LOCAL
        | _same("repetition_penalty", "penalty_window")
        | _same("dry_multiplier", "dry_base", "dry_allowed_length", "dry_window", "dry_breakers"),
        counts_end=False,
        constrains=True,
        ignores_end=True,
        endless_window=True,
    ),
    # Its ids come with logprobs, and none comes for a token whose text was held back: never all of them for sure.
    "llama.cpp": Dialect(
        fields=_LOCAL
        | _same("dry_multiplier", "dry_base", "dry_allowed_length")
        | {
            "repetition_penalty": ("repeat_penalty",),
            "penalty_window": ("repeat_last_n",),
            "dry_window": ("dry_penalty_last_n",),
            "dry_breakers": ("dry_sequence_breakers",),
        },
        counts_end=True,
        ignores_end=True,
    ),
    "mlx-lm": Dialect(
        fields=_LOCAL
        | _same("repetition_penalty")
        | {
            "penalty_window": (
                "repetition_context_size", "presence_context_size", "frequency_context_size",
            )
        },
        tells_ids=True,
        takes_ids=False,
        counts_end=True,
        legacy_logprobs=False,
        streams_logprobs=False,
        spells_pieces=True,
    ),
    "vllm": Dialect(
        fields=_LOCAL | _same("repetition_penalty"),
        asks={"return_token_ids": True},
        tells_ids=True,
        counts_end=True,
        ignores_end=True,
    ),
}  # fmt: skip


def sampler_fields(arm: str, case: Case, name: str) -> dict[str, Any]:
    """The case's sampler in the server's words. Raises ArmError naming what cannot be said."""
    dialect = DIALECTS[name]
    said: dict[str, Any] = {}
    for field, value in case.sampler.given().items():
        if field not in dialect.fields:
            raise ArmError(
                f"arm {arm}, case {case.name}: a server of dialect {name!r} has no field for `{field}`: "
                "name another `dialect`, or leave this case out"
            )
        if field == "penalty_window" and value < 0 and not dialect.endless_window:
            raise ArmError(
                f"arm {arm}, case {case.name}: a server of dialect {name!r} has no `penalty_window` without end: "
                "name a number of tokens"
            )
        said |= dict.fromkeys(dialect.fields[field], value)
    if case.ignore_eos and not dialect.ignores_end:
        raise ArmError(
            f"arm {arm}, case {case.name}: a server of dialect {name!r} cannot go on past an end of sequence: "
            "leave this case out"
        )
    if case.constraint is not None:
        if not dialect.constrains:
            raise ArmError(
                f"arm {arm}, case {case.name}: nothing is known of how a server of dialect {name!r} is given a "
                "constraint: leave this case out"
            )
        said |= case.constraint.given()
    return said | ({"ignore_eos": True} if case.ignore_eos else {})


def logprob_fields(case: Case, name: str, *, streamed: bool) -> dict[str, Any]:
    """How alternatives are asked for, where the case wants them and the server tells them."""
    dialect = DIALECTS[name]
    if streamed and not dialect.streams_logprobs:
        return {}
    if name == "mlx-lm":
        # Its entries name the first alternative, in no order, not the token drawn; without any they name the token.
        greedy = case.sampler.temperature == 0 and case.logprobs
        return {"logprobs": True} | ({"top_logprobs": min(case.logprobs or 0, 11)} if greedy else {})
    if case.logprobs is None:
        return {}
    if case.messages is None and dialect.legacy_logprobs:
        return {"logprobs": case.logprobs}
    return {"logprobs": True, "top_logprobs": case.logprobs}
