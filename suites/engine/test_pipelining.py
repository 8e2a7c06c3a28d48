"""What is submitted before what is read: the forward stays ahead, and only a draw that needs a history waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tokenline.client import Model

PROMPT = list(range(40, 60))
TOKENS = 12


@pytest.fixture
def order(tiny: Model) -> Iterator[list[str]]:
    """What the engine's thread did, in order: forward, draw, read."""
    engine, done = tiny._engine, []
    names = {"_forward": "forward", "_drawn": "draw", "_decide": "read"}

    def watched(name: str, told: str) -> Any:
        method = getattr(engine, name)

        def call(*arguments: Any) -> Any:
            done.append(told)
            return method(*arguments)

        return call

    for name, told in names.items():
        setattr(engine, name, watched(name, told))
    yield done
    for name in names:
        delattr(engine, name)


def steps(order: list[str]) -> list[tuple[str, ...]]:
    """The steps after the prefill's draw, each ending where the next begins."""
    assert order[0] == "draw"  # of the prefill
    size = 3
    return [tuple(order[at : at + size]) for at in range(1, len(order) - size, size)]


def test_without_a_history_the_next_forward_and_draw_are_submitted_before_a_token_is_read(
    tiny: Model, order: list[str]
) -> None:
    result = tiny.generate(PROMPT, max_tokens=TOKENS, ignore_eos=True)
    assert set(steps(order)) == {("forward", "draw", "read")}
    assert order[-1] == "read"  # the last token: no forward follows what must end the row
    assert result["counters"]["host_reads"] == TOKENS
    assert result["counters"]["decode_forwards"] == TOKENS - 1
    assert result["counters"]["head_positions"] == TOKENS


def test_with_a_penalty_the_forward_stays_ahead_and_only_the_draw_waits(
    tiny: Model, order: list[str]
) -> None:
    result = tiny.generate(PROMPT, max_tokens=TOKENS, ignore_eos=True, repetition_penalty=1.3)
    assert set(steps(order)) == {("forward", "read", "draw")}
    assert result["counters"]["host_reads"] == TOKENS
    assert result["counters"]["decode_forwards"] == TOKENS - 1
