"""XTC, "exclude top choices": sometimes the likeliest tokens go and the least likely of the good ones is left."""

from __future__ import annotations

from collections.abc import Sequence

from tokenline.decode.sampling.candidates import REMOVED, Candidates, columns, ranks
from tokenline.decode.sampling.draw import XTC, uniform
from tokenline.decode.sampling.parameters import RowDraw
from tokenline.request import Sampling


def fires(row: RowDraw) -> bool:
    """Whether XTC acts on this draw: a coin of its own, so that the draw itself is what it would be without."""
    return uniform(row.parameters.seed, row.position, XTC) < row.sampling.xtc_probability


def xtc(candidates: Candidates, rows: Sequence[Sampling], width: int) -> Candidates:
    """Of the tokens with a mass of at least the threshold remove all but the least likely (p-e-w,
    oobabooga/text-generation-webui#6335; of equal ones the last stays). A row keeps them where fewer than `min_keep`
    tokens would be left. `width` is at least how many can have such a mass, or everything."""
    ops = candidates.ops
    head = candidates.ordered() if candidates.ids is not None else candidates.head(width)
    good = head.masses() >= columns(ops, [row.xtc_threshold for row in rows])
    count = ops.row_sum(good)
    settled = candidates.settled()
    removed = ranks(ops, head.logits) < count - 1
    if any(row.min_keep > 1 for row in rows):
        left = ops.row_sum(settled.logits > REMOVED)
        removed = removed & (left - count + 1 >= columns(ops, [row.min_keep for row in rows]))
    logits = ops.where(removed, REMOVED, head.logits)
    if candidates.ids is not None:
        return head.with_logits(logits)
    return settled.with_logits(ops.scatter(settled.logits, head.ids, logits))
