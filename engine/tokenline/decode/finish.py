"""The only place that decides that a row is finished."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from tokenline.decode.loop_detection import detect_loop
from tokenline.request import LoopDetection

# Generated tokens between two returns of the allocator's unused buffers.
CLEAR_CACHE_EVERY = 256


class FinishCause(enum.StrEnum):
    EOS = "Eos"
    STOP_SEQUENCE = "StopSequence"
    GENERATION_BOUND = "GenerationBound"
    STRUCTURED_STOP = "StructuredStop"
    LENGTH = "Length"
    CONTEXT_EXHAUSTED = "ContextExhausted"
    REPETITION_LOOP = "RepetitionLoop"
    # Not decided here: a failed row and a cancelled one are ended from outside, and override a recorded finish.
    ERROR = "Error"
    CANCELLED = "Cancelled"


_WIRE_REASONS = {
    FinishCause.EOS: "stop",
    FinishCause.STOP_SEQUENCE: "stop",
    FinishCause.STRUCTURED_STOP: "stop",
    FinishCause.REPETITION_LOOP: "stop",
    FinishCause.LENGTH: "length",
    FinishCause.CONTEXT_EXHAUSTED: "length",
    FinishCause.GENERATION_BOUND: "length",
    FinishCause.ERROR: "error",
    FinishCause.CANCELLED: "cancelled",
}


def wire_reason(cause: FinishCause, *, called: bool = False) -> str:
    """What a client reads as `finish_reason`; `called`: the row ends with calls of tools."""
    reason = _WIRE_REASONS[cause]
    return "tool_calls" if called and reason == "stop" else reason


class FinishHooks(Protocol):
    """What only the row knows."""

    def stop_text(self, token: int) -> bool:
        """Feed the token through the text; True when a stop string is complete."""
        ...

    def bound_stopped(self) -> bool:
        """A bound of the generation (time, indentation) has fired."""
        ...

    def structured_stopped(self) -> bool:
        """The grammar accepts nothing after this token."""
        ...

    def context_bound_due(self) -> bool:
        """The next token would not fit the context."""
        ...

    def clear_cache(self) -> None: ...


@dataclass
class FinishInput:
    """The token just read, and what it is judged against. `generated` and `history` are appended to."""

    token: int
    eos: Collection[int]
    generated: list[int]
    history: list[int]
    max_tokens: int
    loop_detection: LoopDetection | None = None


def finish_step(step: FinishInput, hooks: FinishHooks) -> FinishCause | None:
    """Push the token and say whether, and why, the row ends with it; the order decides between two causes."""
    if step.token in step.eos:
        return FinishCause.EOS  # not pushed: it is not part of what the row said
    step.generated.append(step.token)
    step.history.append(step.token)
    if hooks.stop_text(step.token):
        return FinishCause.STOP_SEQUENCE
    if hooks.bound_stopped():
        return FinishCause.GENERATION_BOUND
    if hooks.structured_stopped():
        return FinishCause.STRUCTURED_STOP
    if tokens_left(step.generated, step.max_tokens) == 0:
        return FinishCause.LENGTH
    if hooks.context_bound_due():
        return FinishCause.CONTEXT_EXHAUSTED
    if step.loop_detection is not None and detect_loop(step.generated, step.loop_detection) is not None:
        return FinishCause.REPETITION_LOOP
    if len(step.generated) % CLEAR_CACHE_EVERY == 0:
        hooks.clear_cache()
    return None


def tokens_left(generated: Collection[int], max_tokens: int) -> int:
    """How many tokens the row may still push: the one definition of the max-token test."""
    return max(max_tokens - len(generated), 0)
