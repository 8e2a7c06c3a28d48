"""finish_step: each cause, the declared precedence, and what is pushed."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import pytest

from tokenline.decode.finish import FinishCause, FinishInput, finish_step, tokens_left, wire_reason
from tokenline.request import LoopDetection

EOS = 2


@dataclass
class Hooks:
    stop: bool = False
    bound: bool = False
    structured: bool = False
    context: bool = False
    fed: list[int] = field(default_factory=list)
    cleared: int = 0

    def stop_text(self, token: int) -> bool:
        self.fed.append(token)
        return self.stop

    def bound_stopped(self) -> bool:
        return self.bound

    def structured_stopped(self) -> bool:
        return self.structured

    def context_bound_due(self) -> bool:
        return self.context

    def clear_cache(self) -> None:
        self.cleared += 1


# In the order that decides between two causes on one token (mlxcel #2168: end of sequence, stop string, generation
# bound, structured stop, max tokens, context bound, repetition loop).
ORDER = ["eos", "stop", "bound", "structured", "length", "context", "loop"]
CAUSES = dict(
    zip(
        ORDER,
        [
            FinishCause.EOS,
            FinishCause.STOP_SEQUENCE,
            FinishCause.GENERATION_BOUND,
            FinishCause.STRUCTURED_STOP,
            FinishCause.LENGTH,
            FinishCause.CONTEXT_EXHAUSTED,
            FinishCause.REPETITION_LOOP,
        ],
        strict=True,
    )
)


def run(*due: str) -> tuple[FinishCause | None, FinishInput, Hooks]:
    hooks = Hooks(*(name in due for name in ("stop", "bound", "structured", "context")))
    step = FinishInput(
        token=EOS if "eos" in due else 7,
        eos={EOS},
        generated=[7] * 7,
        history=[1, *[7] * 7],
        max_tokens=8 if "length" in due else 100,
        loop_detection=LoopDetection(max_period=1, repeats=4, min_tokens=8) if "loop" in due else None,
    )
    return finish_step(step, hooks), step, hooks


@pytest.mark.parametrize("due", ORDER)
def test_each_cause_alone(due: str) -> None:
    cause, step, hooks = run(due)
    assert cause == CAUSES[due]
    pushed = due != "eos"
    assert len(step.generated) == 7 + pushed
    assert len(step.history) == 8 + pushed
    assert hooks.fed == ([7] if pushed else [])


@pytest.mark.parametrize(("first", "second"), list(combinations(ORDER, 2)))
def test_of_two_causes_on_one_token_the_earlier_in_the_order_is_reported(first: str, second: str) -> None:
    assert run(first, second)[0] == CAUSES[first]


def test_an_unfinished_row_follows_the_cache_clear_cadence() -> None:
    hooks = Hooks()
    generated: list[int] = []
    for token in range(600):
        assert finish_step(FinishInput(token + 10, {EOS}, generated, [], 1000), hooks) is None
    assert hooks.cleared == 2


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("Eos", "stop"),
        ("StopSequence", "stop"),
        ("StructuredStop", "stop"),
        ("RepetitionLoop", "stop"),
        ("Length", "length"),
        ("ContextExhausted", "length"),
        ("GenerationBound", "length"),
        ("Error", "error"),
    ],
)
def test_wire_reasons(cause: str, reason: str) -> None:
    assert wire_reason(FinishCause(cause)) == reason


def test_every_cause_has_a_wire_reason() -> None:
    assert all(wire_reason(cause) for cause in FinishCause)


@pytest.mark.parametrize(("said", "limit", "left"), [(0, 0, 0), (0, 1, 1), (1, 1, 0), (3, 1, 0), (2, 5, 3)])
def test_tokens_left(said: int, limit: int, left: int) -> None:
    assert tokens_left([9] * said, limit) == left
