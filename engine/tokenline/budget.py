"""What live rows may take: their layer caches projected in bytes, against a bound."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Self

import numpy as np

from tokenline.cache import LayerCache
from tokenline.errors import BackendError
from tokenline.models import Model
from tokenline.ops import Ops
from tokenline.row import Row

_log = logging.getLogger("tokenline")

# Of a row without `max_tokens`, so many tokens are projected beyond its prompt; once it has those, so many beyond them.
ALLOWANCE, STEP = 4096, 256
SHORTEST = 2  # a token of a prompt and one after it
# Of the memory that is free once the weights are there: the rest is for what a forward needs for itself.
SHARE = 0.75


class ByteBudget:
    """Whether rows fit beside one another. `caches` are a row's, one for each layer, that hold a token already.

    A batch is projected as it is laid out: every row takes what the longest of them takes. A row is never given up:
    where rows without a bound have outgrown their projection, none is admitted until there is room again.
    """

    def __init__(self, caches: Sequence[LayerCache], limit_bytes: int) -> None:
        self._caches = caches
        self.limit_bytes = limit_bytes

    @classmethod
    def of(cls, ops: Ops, network: Model, given: int | None) -> Self:
        """Of the memory that is free now, which is after the weights were read; what was asked for, but never more.

        States in the prompt cache are not subtracted: they give way to live rows. BackendError where no row fits.
        """
        caches = network.new_caches()
        network.hidden(ops.array(np.asarray([[0]])), caches)  # lays them out
        free = ops.free_bytes()
        budget = cls(caches, int(free * SHARE) if given is None else min(given, free))
        if given is not None and given > free:
            _log.warning("a kv budget of %d bytes was asked for, %d are free", given, free)
        if budget.row_bytes(SHORTEST) > budget.limit_bytes:
            raise BackendError(
                f"layer caches may take {budget.limit_bytes} bytes, a row takes {budget.row_bytes(SHORTEST)} at least",
                "raise kv_budget, or free memory",
            )
        return budget

    def row_bytes(self, tokens: int) -> int:
        """The most that a row takes on its way to so many tokens."""
        return sum(cache.projected_bytes(tokens) for cache in self._caches)

    def fits(self, rows: Sequence[Row]) -> bool:
        return len(rows) * self.row_bytes(max(projected_length(row) for row in rows)) <= self.limit_bytes

    def longest_alone(self, most: int) -> int:
        """How long a row may become that runs alone, `most` tokens at most; 0 where none fits."""
        fitting, beyond = 0, most + 1
        while beyond - fitting > 1:
            tried = (fitting + beyond) // 2
            if self.row_bytes(tried) <= self.limit_bytes:
                fitting = tried
            else:
                beyond = tried
        return fitting


def projected_length(row: Row) -> int:
    """How long a row is taken to become."""
    if row.request.max_tokens is not None:
        return row.length_at_end
    return min(row.length_at_end, max(len(row.prompt) + ALLOWANCE, len(row.history) + STEP))
