"""What drawing costs beside a greedy step, on a vocabulary of 150,000 with every stage on, for 1 row and for 8.

`python suites/bench/sampling_cost.py` prints medians and spread on a quiet machine, in milliseconds.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from tokenline.decode.sampling import RowDraw, RowParameters, sample
from tokenline.ops import BACKENDS, open_ops
from tokenline.request import Sampling

VOCABULARY = 150_000
ROUNDS = 60
EVERY_STAGE = Sampling(
    temperature=0.9,
    dynatemp_range=0.2,
    top_k=60,
    top_p=0.95,
    min_p=0.02,
    typical_p=0.95,
    top_n_sigma=3.0,
    xtc_probability=0.5,
    repetition_penalty=1.1,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    penalty_window=256,
    dry_multiplier=0.8,
    seed=7,
)


def milliseconds(backend: str, settings: Sampling, count: int) -> list[float]:
    """Wall times of drawing for `count` rows, read to the host."""
    ops = open_ops(backend, "float32", 1)
    rng = np.random.default_rng(3)
    logits = ops.array(rng.normal(0, 3, (count, VOCABULARY)).astype(np.float32))
    history = rng.integers(0, VOCABULARY, 512).tolist()
    parameters = [RowParameters(settings, seed, None) for seed in range(count)]
    rows = [RowDraw(each, 12, history) for each in parameters]
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        ops.read([sample(ops, logits, rows).tokens])
        times.append((time.perf_counter() - started) * 1e3)
    return sorted(times[5:])


def main() -> None:
    for backend in BACKENDS:
        for count in (1, 8):
            greedy, drawn = (milliseconds(backend, settings, count) for settings in (Sampling(), EVERY_STAGE))
            added = (statistics.median(drawn) - statistics.median(greedy)) / count
            print(
                f"{backend}, {count} row(s): greedy {statistics.median(greedy):.2f}, every stage "
                f"{statistics.median(drawn):.2f} ({drawn[0]:.2f} to {drawn[-1]:.2f}): {added:.2f} ms more for a row"
            )


if __name__ == "__main__":
    main()
