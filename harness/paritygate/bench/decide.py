"""From paired time ratios to a verdict: slower, no slower, or not known yet.

Everything here is arithmetic on log ratios `log(head / base)`, positive when the head takes longer. A figure is
slower when a one-sided lower confidence bound of the mean log ratio lies above `log(1 + margin)`, and no slower when
the upper bound lies below it (Student's t on pairs). Looking again after more pairs costs confidence: alpha is split
evenly over the planned looks, and for a red over the figures too (Bonferroni), so the chance of any false red in a
session stays below alpha. The median must agree with a red, so that one wild pair cannot make it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paritygate.verdict import Verdict


def _student() -> Any:
    """Student's t. Imported here: whoever only compares what engines say does without scipy."""
    try:
        from scipy import stats
    except ImportError as error:
        raise ImportError(f"{error}: comparing times needs scipy: pip install 'paritygate[bench]'") from error
    return stats.t


@dataclass(frozen=True)
class Decision:
    """What the pairs say. Ratios are head / base, times, so above 1 is slower; bounds are one-sided."""

    verdict: Verdict
    ratio: float
    low: float
    high: float
    pairs: int
    margin: float


def bounds(log_ratios: Sequence[float], alpha: float) -> tuple[float, float]:
    """One-sided lower and upper bounds of the mean, each missed with probability alpha; infinite below two pairs."""
    count = len(log_ratios)
    if count < 2:
        return -math.inf, math.inf
    mean = statistics.fmean(log_ratios)
    spread = statistics.stdev(log_ratios) / math.sqrt(count)
    reach = float(_student().ppf(1 - alpha, count - 1)) * spread
    return mean - reach, mean + reach


def decide(log_ratios: Sequence[float], *, margin: float, alpha: float, looks: int, figures: int) -> Decision:
    """The verdict of one figure after one look at its pairs."""
    limit = math.log1p(margin)
    low, _ = bounds(log_ratios, alpha / (looks * figures))
    _, high = bounds(log_ratios, alpha / looks)
    median = statistics.median(log_ratios) if log_ratios else 0.0
    if low > limit and median > limit:
        verdict = Verdict.SLOWER
    elif high < limit:
        verdict = Verdict.NO_SLOWER
    else:
        verdict = Verdict.INCONCLUSIVE
    return Decision(verdict, math.exp(median), math.exp(low), _exp(high), len(log_ratios), margin)


def _exp(value: float) -> float:
    return math.inf if value == math.inf else math.exp(value)
