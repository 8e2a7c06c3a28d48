"""How large a difference this class of machine shows between a program and itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from paritygate.bench.decide import bounds
from paritygate.bench.observation import FIGURES, Workload, figure
from paritygate.bench.pairs import Side
from paritygate.bench.session import run_session
from paritygate.bench.settings import BenchPolicy

HEADROOM = 1.5


@dataclass(frozen=True)
class Noise:
    """The spread of A/A pairs of one figure, and the margin that it asks for with the policy's rounds and alpha."""

    figure: str
    pairs: int
    median: float
    spread: float
    margin: float


def calibrate(
    root: Path, workload: Workload, policy: BenchPolicy, rounds: int, progress: Callable[[str], None]
) -> list[Noise]:
    """Run this checkout against itself. Raises BenchError.

    The margin is what the upper bound of `min_rounds` rounds reaches at that spread, half as much again: an unchanged
    engine then passes without asking for every round.
    """
    unbounded = replace(policy, min_rounds=rounds, max_rounds=rounds, session_seconds=math.inf)
    session = run_session(Side("base", root, workload), Side("head", root, workload), unbounded, progress)
    looks = policy.max_rounds - policy.min_rounds + 1
    found = []
    for name in FIGURES:
        logs = [math.log(figure(pair[1], name) / figure(pair[0], name)) for pair in session.pairs]
        spread = statistics.stdev(logs)
        # Student's t of as few pairs as the gate first looks at, scaled to the spread seen here.
        few = 2 * policy.min_rounds
        unit = [1.0, -1.0] * (few // 2)
        _, reach = bounds([value / statistics.stdev(unit) for value in unit], policy.alpha / looks)
        margin = math.expm1(HEADROOM * spread * reach)
        found.append(Noise(name, len(logs), math.exp(statistics.median(logs)), spread, margin))
    return found
