"""The decision on synthetic pairs whose true ratio is known: power, false alarms, and saying that it cannot tell."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paritygate.bench.decide import bounds, decide
from paritygate.verdict import Verdict

SETTINGS = {"margin": 0.08, "alpha": 0.05, "looks": 2, "figures": 3}


def noise(seed: int, count: int, spread: float, mean: float = 0.0) -> list[float]:
    return np.random.default_rng(seed).normal(mean, spread, count).tolist()


def test_bounds_are_students_t_by_hand() -> None:
    # Mean 2, standard deviation 1, n = 3: 2 -+ t(0.95, 2) / sqrt(3), with t(0.95, 2) = 2.919986.
    low, high = bounds([1.0, 2.0, 3.0], 0.05)
    assert low == pytest.approx(2 - 2.919986 / math.sqrt(3), abs=1e-5)
    assert high == pytest.approx(2 + 2.919986 / math.sqrt(3), abs=1e-5)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_pairs_decide_nothing(count: int) -> None:
    assert decide([0.5] * count, **SETTINGS).verdict is Verdict.INCONCLUSIVE


def test_twenty_percent_slower_is_seen_in_four_pairs_of_a_quiet_machine() -> None:
    verdicts = [decide(noise(seed, 4, 0.015, math.log(1.2)), **SETTINGS).verdict for seed in range(200)]
    assert verdicts.count(Verdict.SLOWER) >= 190
    assert Verdict.NO_SLOWER not in verdicts


def test_the_same_program_is_no_slower_on_a_quiet_machine() -> None:
    verdicts = [decide(noise(seed, 4, 0.015), **SETTINGS).verdict for seed in range(200)]
    assert verdicts.count(Verdict.NO_SLOWER) >= 190
    assert Verdict.SLOWER not in verdicts


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.2, 0.5])
def test_the_same_program_is_hardly_ever_called_slower_however_noisy(spread: float) -> None:
    # Alpha bounds a whole session; one look at one figure has a sixth of it, and the margin on its side.
    reds = sum(decide(noise(seed, 6, spread), **SETTINGS).verdict is Verdict.SLOWER for seed in range(2000))
    assert reds / 2000 <= 0.05 / 6 + 3 * math.sqrt(0.05 / 6 / 2000)


def test_a_change_of_exactly_the_margin_is_rarely_red() -> None:
    logs = [noise(seed, 6, 0.02, math.log1p(0.08)) for seed in range(2000)]
    reds = sum(decide(log, **SETTINGS).verdict is Verdict.SLOWER for log in logs)
    assert reds / 2000 <= 0.05 / 6 + 3 * math.sqrt(0.05 / 6 / 2000)


def test_too_noisy_is_inconclusive() -> None:
    verdicts = [decide(noise(seed, 6, 0.3), **SETTINGS).verdict for seed in range(200)]
    assert verdicts.count(Verdict.INCONCLUSIVE) >= 180


def test_one_wild_pair_makes_no_red() -> None:
    decision = decide([0.001, -0.002, 0.0, 0.9], **SETTINGS)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.ratio == pytest.approx(math.exp(0.0005))


def test_faster_is_no_slower() -> None:
    decision = decide(noise(1, 4, 0.01, math.log(0.5)), **SETTINGS)
    assert decision.verdict is Verdict.NO_SLOWER
    assert decision.ratio == pytest.approx(0.5, rel=0.03)
