"""A case: a prompt with its parameters, spelled the same for every arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from paritygate.quantities import Finite, Integer64, Natural, NotNegative, TokenId, Tokens

# What a case may be asked as.
PROMPTS = ("prompt", "messages", "prompt_token_ids")


def one_prompt_needed(given: Sequence[str], kinds: Sequence[str]) -> str:
    """What a case that has no prompt, or two, is told."""
    found = f"it has {' and '.join(given)}" if given else "it has none, so nothing would be asked"
    return f"give exactly one of {', '.join(kinds[:-1])} and {kinds[-1]}: {found}"


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a chat."""

    role: str
    content: str


class Sampler(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How tokens are drawn; what is left at its default is not sent to an arm. Temperature 0 is greedy."""

    temperature: NotNegative = 0.0
    top_k: Integer64 | None = None
    top_p: NotNegative | None = None
    min_p: NotNegative | None = None
    repetition_penalty: NotNegative | None = None
    presence_penalty: Finite | None = None
    frequency_penalty: Finite | None = None
    penalty_window: Integer64 | None = None
    dry_multiplier: NotNegative | None = None
    dry_base: NotNegative | None = None
    dry_allowed_length: Integer64 | None = None
    dry_window: Integer64 | None = None
    dry_breakers: tuple[str, ...] | None = None
    seed: Integer64 | None = None

    def given(self) -> dict[str, Any]:
        """The fields to send: temperature always, the rest where a case sets them."""
        return {"temperature": self.temperature} | msgspec.to_builtins(self)


class Constraint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an answer is held to by the engine's grammar: exactly one of these. `grammar` is Lark's."""

    json_object: bool = False
    json_schema: dict[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None

    def __post_init__(self) -> None:
        if len(self.given()) != 1:
            raise ValueError("constraint: give one of json_object, json_schema, regex, choice and grammar")

    def given(self) -> dict[str, Any]:
        """The one that is set, by its name."""
        return msgspec.to_builtins(self)


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Exactly one of `prompt`, `messages` and `prompt_token_ids` is the prompt; `kind` says what the case is for.

    `ignore_eos` goes on past an end of sequence. An arm that read fewer than `min_prompt_tokens` was not asked this
    case: what is said about a long prompt must not come from a short one.
    """

    name: str
    max_tokens: Tokens
    kind: str = "plain"
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    prompt_token_ids: tuple[TokenId, ...] | None = None
    stop: tuple[str, ...] = ()
    sampler: Sampler = Sampler()
    constraint: Constraint | None = None
    ignore_eos: bool = False
    min_prompt_tokens: Natural = 0
    logprobs: Natural | None = 5

    def __post_init__(self) -> None:
        given = [key for key in PROMPTS if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"case {self.name}: {one_prompt_needed(given, PROMPTS)}")
        if not getattr(self, given[0]):
            raise ValueError(f"case {self.name}: {given[0]} is empty: nothing would be asked")

    def with_token_ids(self, token_ids: tuple[int, ...], *, name: str | None = None) -> Case:
        """The same parameters over a prompt that is already tokens, however many they are."""
        return msgspec.structs.replace(
            self,
            name=name or self.name,
            prompt=None,
            messages=None,
            prompt_token_ids=token_ids,
            min_prompt_tokens=0,
        )
