"""One draw for every row of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenline.decode.sampling import stages
from tokenline.decode.sampling.draw import uniform
from tokenline.decode.sampling.parameters import RowParameters
from tokenline.ops.base import Array, Ops


@dataclass(frozen=True)
class Drawn:
    """On the device, not yet read: `tokens` int [rows]; `valid` bool [rows], False where a row's logits are not
    numbers; `logprobs` float32 [rows, 1 + n], the drawn token's first, and `alternatives` int [rows, n], the n most
    likely, or None if no row reports any."""

    tokens: Array
    valid: Array
    logprobs: Array | None
    alternatives: Array | None

    def arrays(self) -> list[Array]:
        reported = [] if self.logprobs is None else [self.logprobs, self.alternatives]
        return [self.tokens, self.valid, *reported]


def sample(
    ops: Ops,
    logits: Array,
    rows: Sequence[RowParameters],
    positions: Sequence[int],
    histories: Sequence[Sequence[int]],
) -> Drawn:
    """Draw from logits [rows, V]; `positions` is the index that each drawn token will have in its row's text.

    A row's draw depends on nothing but its own logits, parameters, position and history: rows that truncate and rows
    that do not take different routes here, each its own whatever its neighbours ask for.
    """
    logits = ops.to_float32(logits)
    valid = ops.isfinite_row(logits)
    logits = stages.bias(ops, logits, rows)
    logits = stages.penalties(ops, logits, rows, histories)
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault("greedy" if row.greedy else "truncated" if row.truncates else "whole", []).append(
            index
        )
    drawn: list[tuple[list[int], Array, Array]] = []
    for kind, members in groups.items():
        mine = [rows[i] for i in members]
        part = logits if len(members) == len(rows) else ops.take(logits, members)
        uniforms = [uniform(rows[i].seed, positions[i]) for i in members]
        if kind == "greedy":
            drawn.append((members, ops.argmax(part), part))
        elif kind == "whole":
            drawn.append((members, _invert(ops, stages.temperature(ops, part, mine), uniforms), part))
        else:
            drawn.append((members, *_truncated(ops, part, mine, uniforms)))
    if len(drawn) == 1:
        _, tokens, processed = drawn[0]
    else:
        order = np.argsort(np.concatenate([members for members, _, _ in drawn])).tolist()
        tokens = ops.take(ops.concat([t for _, t, _ in drawn], 0), order)
        processed = ops.take(ops.concat([p for _, _, p in drawn], 0), order)
    return Drawn(tokens, valid, *_reported(ops, processed, tokens, rows))


def _truncated(
    ops: Ops, logits: Array, rows: Sequence[RowParameters], uniforms: Sequence[float]
) -> tuple[Array, Array]:
    order = ops.argsort_descending(logits)
    ordered = ops.gather(logits, order)
    for stage in (stages.top_k, stages.top_p, stages.min_p):
        ordered = stage(ops, ordered, rows)
    chosen = _invert(ops, stages.temperature(ops, ordered, rows), uniforms)
    tokens = ops.gather(order, chosen[:, None])[:, 0]
    return tokens, ops.scatter(logits, order, ordered)


def _invert(ops: Ops, logits: Array, uniforms: Sequence[float]) -> Array:
    """The index at which the cumulative mass first exceeds each row's uniform share of the whole."""
    cumulative = ops.cumsum(ops.softmax(logits))
    # The share is taken of the sum as computed, so that rounding never pushes it past the last entry with mass.
    shares = cumulative[:, -1:] * ops.float32(np.asarray(uniforms, np.float32)[:, None])
    return ops.to_int(ops.row_sum(ops.to_int(cumulative <= shares))[:, 0])


def _reported(
    ops: Ops, processed: Array, tokens: Array, rows: Sequence[RowParameters]
) -> tuple[Array | None, Array | None]:
    asked = [row.top_logprobs for row in rows if row.top_logprobs is not None]
    if not asked:
        return None, None
    logprobs = ops.log_softmax(processed)
    alternatives = ops.argsort_descending(processed)[:, : max([1, *asked])]
    indices = ops.concat([ops.to_int(tokens)[:, None], ops.to_int(alternatives)], 1)
    return ops.gather(logprobs, indices), alternatives
