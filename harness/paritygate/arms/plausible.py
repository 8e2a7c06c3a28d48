"""Whether an answer can be true: numbers that no engine can have meant are refused where an answer becomes evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from paritygate.arms.base import Arm, RowFailed
from paritygate.case import Case
from paritygate.stream import Position, Stream, Usage

# A logprob is computed with rounding: so much above zero is still a certainty.
ROUNDED = 1e-3


def vocabulary_of(model: str) -> int | None:
    """Rows of the embedding, as a Hugging Face directory's config says; None where MODEL is none, or does not say."""
    try:
        config = json.loads((Path(model).expanduser() / "config.json").read_bytes())
        told = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    except (OSError, ValueError, AttributeError):
        return None
    return told if isinstance(told, int) and told > 0 else None


def _ids(what: str, ids: Sequence[int | None], vocabulary: int | None) -> Iterator[str]:
    for index, token_id in enumerate(ids):
        if token_id is None:
            continue
        if token_id < 0:
            yield f"{what} {index} has the id {token_id}"
        elif vocabulary is not None and token_id >= vocabulary:
            yield f"{what} {index} has the id {token_id}, the vocabulary has {vocabulary} tokens"


def _logprobs(index: int, position: Position) -> Iterator[str]:
    # An alternative may be forbidden, and have minus infinity; what was drawn was not.
    if not math.isfinite(position.logprob) or position.logprob > ROUNDED:
        yield f"token {index} has logprob {position.logprob}"
    for top in position.top:
        if math.isnan(top.logprob) or top.logprob > ROUNDED:
            yield f"token {index} has an alternative {top.token!r} with logprob {top.logprob}"
    if position.margin is not None and not position.margin >= 0:
        yield f"token {index} has margin {position.margin}"


def _counts(stream: Stream, usage: Usage) -> Iterator[str]:
    told = {name: getattr(usage, name) for name in Usage.__struct_fields__}
    for name, count in told.items():
        if count is not None and count < 0:
            yield f"usage says {count} {name}"
    if usage.total_tokens != usage.prompt_tokens + usage.completion_tokens:
        yield f"usage says {usage.total_tokens} tokens, {usage.prompt_tokens} and {usage.completion_tokens} of them"
    if (usage.cached_tokens or 0) > usage.prompt_tokens:
        yield f"usage says {usage.cached_tokens} cached_tokens of {usage.prompt_tokens} prompt_tokens"
    prompt, ids = stream.prompt_token_ids, stream.token_ids
    if prompt is not None and usage.prompt_tokens != len(prompt):
        yield f"usage says {usage.prompt_tokens} prompt_tokens, there are {len(prompt)} ids"
    if ids is None:
        return
    # Engines differ in whether they count the token that ended an answer, which is not among the ids.
    counted = {len(ids)} if stream.finish_reason == "length" else {len(ids), len(ids) + 1}
    if usage.completion_tokens not in counted:
        yield f"usage says {usage.completion_tokens} completion_tokens, there are {len(ids)} ids"


def _faults(stream: Stream, vocabulary: int | None) -> Iterator[str]:
    yield from _ids("prompt token", stream.prompt_token_ids or (), vocabulary)
    yield from _ids("token", stream.token_ids or (), vocabulary)
    for index, position in enumerate(stream.positions or ()):
        told = (position.token_id, *(top.token_id for top in position.top))
        for fault in _ids("alternative", told, vocabulary):
            yield f"token {index}: {fault}"
        yield from _logprobs(index, position)
    if stream.usage is not None:
        yield from _counts(stream, stream.usage)
    for name, count in stream.counters.items():
        if isinstance(count, int | float) and not count >= 0:
            yield f"counter {name} is {count}"


def implausible(stream: Stream, vocabulary: int | None = None) -> str:
    """The first value of an answer that cannot be, in words; "" where there is none."""
    return next(_faults(stream, vocabulary), "")


class PlausibleArm:
    """An arm whose every answer is looked at before anybody compares it; all else is the arm's own."""

    def __init__(self, arm: Arm, model: str) -> None:
        self._arm = arm
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arm, name)

    @cached_property
    def _vocabulary(self) -> int | None:
        return vocabulary_of(self._model)

    def _checked(self, stream: Stream) -> Stream:
        if fault := implausible(stream, self._vocabulary):
            raise RowFailed(f"arm {self._arm.name}, case {stream.case}: {fault}: that cannot be")
        return stream

    def generate(self, case: Case) -> Stream:
        return self._checked(self._arm.generate(case))

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        return tuple(self._checked(stream) for stream in self._arm.repeat(case, times))

    def together(self, cases: tuple[Case, ...]) -> tuple[Stream, ...]:
        return tuple(self._checked(stream) for stream in self._arm.together(cases))


def plausible(arm: Arm, model: str) -> Arm:
    """The arm, which then raises RowFailed for an answer that cannot be. MODEL tells the vocabulary, where it can."""
    return cast(Arm, PlausibleArm(arm, model))
