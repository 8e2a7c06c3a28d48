"""Log probabilities that are told to the caller."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenline.decode.sampling.parameters import RowParameters
from tokenline.ops.base import Array, Ops


def reported(
    ops: Ops, raw: Array, processed: Array, tokens: Array, rows: Sequence[RowParameters]
) -> tuple[Array, Array]:
    """For each row the logprobs [rows, 1 + n] of its token and of the n likeliest, and these, [rows, n]: of the
    processed logits, or of the raw ones where a row asks for those."""
    modes = {row.raw_logprobs for row in rows if row.top_logprobs is not None}
    if modes == {True, False}:
        wants_raw = ops.array(np.asarray([row.raw_logprobs for row in rows])[:, None])
        told = ops.where(wants_raw, raw, processed)
    else:
        told = raw if True in modes else processed
    count = max([1, *(row.top_logprobs or 0 for row in rows)])
    return told_of(ops, told, tokens, count)


def told_of(ops: Ops, logits: Array, tokens: Array, count: int) -> tuple[Array, Array]:
    """The logprobs [rows, 1 + count] of each row's token and of the `count` likeliest, and these, [rows, count]."""
    _, alternatives = ops.largest(logits, count)
    indices = ops.concat([ops.to_int(tokens)[:, None], ops.to_int(alternatives)], 1)
    return ops.gather(ops.log_softmax(logits), indices), alternatives
