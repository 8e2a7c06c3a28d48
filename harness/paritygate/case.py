"""A case: a prompt with its parameters, spelled the same for every arm."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec


class CaseError(Exception):
    """A case file that cannot be read; the message names the file and the case."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a chat."""

    role: str
    content: str


class Sampler(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How tokens are drawn; what is left at its default is not sent to an arm. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    penalty_window: int | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_window: int | None = None
    dry_breakers: tuple[str, ...] | None = None
    seed: int | None = None

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
    max_tokens: int
    kind: str = "plain"
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()
    sampler: Sampler = Sampler()
    constraint: Constraint | None = None
    ignore_eos: bool = False
    min_prompt_tokens: int = 0
    logprobs: int | None = 5

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


class _CaseEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case as a file spells it: a long prompt may lie in a text file beside it."""

    name: str
    max_tokens: int
    kind: str = "plain"
    prompt: str | None = None
    prompt_file: str | None = None
    messages: tuple[Message, ...] | None = None
    stop: tuple[str, ...] = ()
    sampler: Sampler = Sampler()
    constraint: Constraint | None = None
    ignore_eos: bool = False
    min_prompt_tokens: int = 0


def _case(entry: _CaseEntry, directory: Path) -> Case:
    given = [key for key in ("prompt", "prompt_file", "messages") if getattr(entry, key) is not None]
    if len(given) != 1:
        raise CaseError(
            f"case {entry.name}: give exactly one of prompt, prompt_file and messages, not {len(given)}"
        )
    prompt = entry.prompt
    if entry.prompt_file is not None:
        try:
            prompt = (directory / entry.prompt_file).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CaseError(f"case {entry.name}: {entry.prompt_file}: {error}") from error
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__ if name != "prompt_file"}
    return Case(**fields | {"prompt": prompt})


def load_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a TOML file with one `[[case]]` table each; names are unique. Raises CaseError."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        entries = msgspec.convert(document.get("case", []), tuple[_CaseEntry, ...])
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CaseError(f"{path}: {error}") from error
    if not entries:
        raise CaseError(f"{path}: no [[case]] in it: nothing could be tested")
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise CaseError(f"{path}: two cases are named {name}")
    return tuple(_case(entry, path.parent) for entry in entries)
