"""Temperature, fixed or by the entropy of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tokenline.decode.sampling.candidates import Candidates, columns
from tokenline.request import Sampling

# A dynamic range may reach down to 0, which divides nothing: below this a draw is greedy in float32.
_COLDEST = 1e-4


def temperature(candidates: Candidates, rows: Sequence[Sampling]) -> Candidates:
    """Divide by the temperature. With a range it goes from temperature - range to temperature + range with the entropy
    of the candidates over the greatest that so many could have, to the power of the exponent (as in llama.cpp)."""
    ops = candidates.ops
    if not any(row.dynatemp_range for row in rows):
        return _divided(candidates, columns(ops, [row.temperature for row in rows]))
    settled = candidates.settled()
    masses = settled.masses()
    left = masses > 0
    surprise = ops.where(left, -ops.log(ops.where(left, masses, 1.0)), 0.0)
    entropy = ops.row_sum(masses * surprise)
    count = ops.row_sum(ops.where(left, masses * 0 + 1, 0.0))
    # One candidate has no entropy, and nothing to gain from a temperature.
    greatest = ops.log(ops.where(count > 1, count, 2.0))
    share = entropy / greatest
    exponents = columns(ops, [row.dynatemp_exponent for row in rows])
    share = ops.where(share > 0, ops.exp(exponents * ops.log(ops.where(share > 0, share, 1.0))), 0.0)
    low = columns(ops, [max(0.0, row.temperature - row.dynatemp_range) for row in rows])
    high = columns(ops, [row.temperature + row.dynatemp_range for row in rows])
    divisor = low + (high - low) * share
    return _divided(settled, ops.where(divisor > _COLDEST, divisor, _COLDEST))


def _divided(candidates: Candidates, divisor: object) -> Candidates:
    before = candidates.divisor
    return replace(candidates, divisor=divisor if before is None else before * divisor, shares=None)
