"""Repetition loops of every period, and texts that repeat without being one."""

from __future__ import annotations

import pytest

from tokenline.decode.loop_detection import detect_loop
from tokenline.request import LoopDetection

SETTINGS = LoopDetection()


@pytest.mark.parametrize("period", range(1, 65))
def test_a_loop_of_every_period_is_found_and_its_period_told(period: int) -> None:
    loop = [100 + i for i in range(period)]
    copies = max(4, -(-32 // period))
    assert detect_loop([1, 2, 3, *loop * copies], SETTINGS) == period


@pytest.mark.parametrize("period", [1, 2, 3, 7, 64])
def test_one_token_short_of_enough_copies_is_no_loop(period: int) -> None:
    loop = [100 + i for i in range(period)]
    enough = max(4 * period, 32)
    text = [1, 2, 3, *(loop * enough)[: enough - 1]]
    assert detect_loop(text, SETTINGS) is None


def test_a_period_over_the_bound_is_no_loop() -> None:
    assert detect_loop(list(range(65)) * 8, SETTINGS) is None
    assert detect_loop(list(range(65)) * 8, LoopDetection(max_period=65)) == 65


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("| a | 1 |\n| b | 2 |\n| c | 3 |\n| d | 4 |\n| e | 5 |\n| f | 6 |\n", id="table"),
        pytest.param("|------|------|------|\n| x | y | z |\n", id="table-rule"),
        pytest.param(
            "for i in range(10):\n    a[i] = b[i]\nfor j in range(10):\n    c[j] = d[j]\n", id="code"
        ),
        pytest.param("1. one\n2. two\n3. three\n4. four\n5. five\n6. six\n7. seven\n8. eight\n", id="list"),
        pytest.param("10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25", id="numbers"),
        pytest.param("3.14159265358979323846264338327950288419716939937510582097", id="digits"),
        pytest.param("ha ha ha ha, she said, ha ha ha ha", id="laughter"),
        pytest.param("Wait...... no.......... yes", id="dots"),
    ],
)
def test_texts_that_repeat_a_little_do_not_fire_at_any_character(text: str) -> None:
    tokens = [ord(character) for character in text]
    fired = [n for n in range(len(tokens) + 1) if detect_loop(tokens[:n], SETTINGS) is not None]
    assert fired == []


def test_nothing_is_no_loop() -> None:
    assert detect_loop([], SETTINGS) is None


@pytest.mark.parametrize("settings", [LoopDetection(max_period=10**30), LoopDetection(repeats=10**30)])
@pytest.mark.timeout(10)
def test_an_absurd_bound_costs_no_more_than_the_text_is_long(settings: LoopDetection) -> None:
    assert detect_loop(list(range(100)), settings) is None
    assert detect_loop([7] * 40, settings) == (1 if settings.repeats == 4 else None)
