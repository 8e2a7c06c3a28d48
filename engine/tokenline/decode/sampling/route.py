"""Which stages a row's draw runs, and over how much of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from tokenline.decode.sampling import mirostat
from tokenline.decode.sampling.candidates import Candidates, hold
from tokenline.decode.sampling.parameters import RowDraw
from tokenline.decode.sampling.xtc import fires
from tokenline.request import Sampling

# The head that top-k or XTC needs has one of these sizes, so that rows that ask for nearly the same are drawn together.
HEADS = (128, 1024)
_READ_IN_ORDER = frozenset({"top_k", "typical_p", "top_p", "xtc"})


def head_for(count: int) -> int | None:
    """The smallest head that holds so many, None where only everything does."""
    return next((size for size in HEADS if count <= size), None)


@dataclass(frozen=True)
class Route:
    """What one draw runs: a function of its row alone, so that neighbours never change a row's bits."""

    stages: tuple[str, ...]
    end: str  # "greedy", "draw", "mirostat 1", "mirostat 2"
    head: int | None  # what top-k or XTC needs, where one of them asks first

    @classmethod
    def of(cls, row: RowDraw) -> Route:
        s = row.sampling
        stages = [stage for stage in row.parameters.stages if stage != "xtc" or fires(row)]
        if row.parameters.greedy:
            stages = [stage for stage in stages if stage in ("penalties", "dry")]
            return cls(tuple(stages), "greedy", None)
        first = next((stage for stage in stages if stage in _READ_IN_ORDER), None)
        count = {"top_k": s.top_k, "xtc": ceil(1 / s.xtc_threshold)}.get(first or "")
        end = f"mirostat {s.mirostat}" if s.mirostat else "draw"
        return cls(tuple(stages), end, None if count is None else head_for(count))


def holds_top_p(head: Candidates, rows: Sequence[Sampling]) -> np.ndarray | None:
    """Which rows' heads hold all that top-p keeps, bool [rows]; None where looking would cost a wait."""
    shares = head.ops.peek(head.masses())
    if shares is None:
        return None
    kept = np.asarray([row.min_keep for row in rows]) <= shares.shape[-1]
    return hold(shares, [row.top_p for row in rows]) & kept


def holds_mirostat(head: Candidates, version: int, mus: Sequence[float]) -> np.ndarray | None:
    """The same for mirostat's cut."""
    if version == 1:
        counts = head.ops.peek(mirostat.estimated_count(head, mus))
        return None if counts is None else counts[:, 0] <= head.logits.shape[-1]
    shares = head.ops.peek(head.masses())
    return None if shares is None else shares[:, -1] < np.exp2(-np.minimum(np.asarray(mus), 120.0))
