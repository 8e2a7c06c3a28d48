"""The tokens that may still be drawn, as the stages hand them on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenline.ops.base import Array, Ops

REMOVED = float("-inf")
# Where only the logits say how much of the vocabulary is needed, these are tried in turn before everything is sorted.
TRIED = (1024, 16384)


def hold(shares: np.ndarray, least: Sequence[float]) -> np.ndarray:
    """Which rows' shares [rows, n] sum to at least so much, with room for a sum in another order; bool [rows]."""
    return shares.sum(-1, dtype=np.float64) >= np.asarray(least) * (1 + 1e-4) + 1e-6


def columns(ops: Ops, values: Sequence[float]) -> Array:
    """One number per row, float32 [rows, 1]."""
    return ops.float32(np.asarray(values, dtype=np.float32)[:, None])


def ranks(ops: Ops, like: Array) -> Array:
    """0, 1, 2, … along the last axis, float32 [1, n]."""
    return ops.float32(np.arange(like.shape[-1], dtype=np.float32)[None])


@dataclass(frozen=True)
class Candidates:
    """Logits float32 [rows, n]; a removed entry is -infinity.

    `ids` int [rows, n] says which tokens they are, None that entry i is token i of all `vocabulary`. `descending`: what
    is left comes first, the likeliest before the others, of equal ones the lower id. `divisor` [rows, 1] is the
    temperature so far: it is kept apart because reported logprobs do not see it. `floor` [rows, 1]: logits below it are
    removed, wherever they are looked at next. `shares`, where the entries are only the head of a distribution: their
    part of its mass. `spare`: nobody else holds the logits, so that the next stage may write into them.
    """

    ops: Ops
    logits: Array
    vocabulary: int
    ids: Array | None = None
    descending: bool = False
    divisor: Array | None = None
    floor: Array | None = None
    shares: Array | None = None
    spare: bool = False

    def tempered(self) -> Array:
        return self.logits if self.divisor is None else self.logits / self.divisor

    def masses(self) -> Array:
        return self.ops.softmax(self.tempered()) if self.shares is None else self.shares

    def with_logits(self, logits: Array, *, descending: bool = False) -> Candidates:
        return replace(self, logits=logits, descending=descending, shares=None, spare=True)

    def keep(self, condition: Array) -> Candidates:
        """Remove what the condition [rows, n] does not hold for."""
        return self.with_logits(self.ops.where(condition, self.logits, REMOVED), descending=self.descending)

    def at_least(self, bound: Array) -> Candidates:
        """Remove the logits below the bound [rows, 1]; a tail goes, so the order stays."""
        if self.ids is not None:
            return self.keep(self.logits >= bound)
        floor = bound if self.floor is None else self.ops.where(self.floor > bound, self.floor, bound)
        return replace(self, floor=floor)

    def settled(self) -> Candidates:
        """The same without a floor."""
        if self.floor is None:
            return self
        return replace(self, floor=None).keep(self.logits >= self.floor)

    def head(self, count: int) -> Candidates:
        """The `count` largest in descending order, their shares told."""
        whole = self.settled()
        shares = whole.masses()
        logits, ids = self.ops.largest(whole.logits, count)
        taken = self.ops.gather(shares, ids)
        ids = ids if whole.ids is None else self.ops.gather(whole.ids, ids)
        return replace(whole, logits=logits, ids=ids, descending=True, shares=taken)

    def first(self, count: int) -> Candidates:
        """The `count` largest in descending order; the others are removed."""
        if self.descending and self.logits.shape[-1] <= count:
            return self
        logits, indices = self.ops.largest(self.logits, count)
        if self.floor is not None:
            logits = self.ops.where(logits >= self.floor, logits, REMOVED)
        ids = indices if self.ids is None else self.ops.gather(self.ids, indices)
        return replace(self, logits=logits, ids=ids, descending=True, floor=None, shares=None)

    def ordered(self) -> Candidates:
        """All in descending order."""
        return self if self.descending else self.first(self.logits.shape[-1])

    def spread(self) -> Candidates:
        """Entry i is token i again; what is not here is removed."""
        if self.ids is None:
            return self.settled()
        rows = self.logits.shape[0]
        nothing = self.ops.float32(np.full((rows, self.vocabulary), REMOVED, np.float32))
        logits = self.ops.scatter(nothing, self.ids, self.logits)
        return replace(self, logits=logits, ids=None, descending=False, shares=None, spare=True)

    def rows(self, indices: Sequence[int]) -> Candidates:
        """Some of the rows."""
        if len(indices) == self.logits.shape[0]:
            return self
        parts = {name: getattr(self, name) for name in ("logits", "ids", "divisor", "floor", "shares")}
        taken = {name: self.ops.take(part, indices) for name, part in parts.items() if part is not None}
        return replace(self, **taken)
