"""One draw for every row of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenline.decode.sampling import dry, masks, mirostat, penalties, truncation
from tokenline.decode.sampling.candidates import TRIED, Candidates
from tokenline.decode.sampling.draw import invert, uniform
from tokenline.decode.sampling.drawn import Drawn
from tokenline.decode.sampling.parameters import RowDraw
from tokenline.decode.sampling.report import reported
from tokenline.decode.sampling.route import Route, holds_mirostat, holds_top_p
from tokenline.decode.sampling.temperature import temperature
from tokenline.decode.sampling.xtc import xtc
from tokenline.ops.base import Array, Ops


@dataclass(frozen=True)
class _Part:
    """What was drawn for some of the rows, given by their indices."""

    members: list[int]
    tokens: Array
    left: Candidates
    surprises: Array | None


def sample(ops: Ops, logits: Array, rows: Sequence[RowDraw]) -> Drawn:
    """Draw from logits [rows, V].

    A row's draw depends on nothing but its own logits, parameters, position and history. Rows whose routes are the same
    are drawn together, each with all of its stages active; the others apart.
    """
    raw = ops.to_float32(logits)
    parameters = [row.parameters for row in rows]
    processed = masks.bias(ops, raw, parameters)
    processed = masks.allowed(ops, processed, parameters)
    processed = masks.banned(ops, processed, parameters, spare=processed is not raw)
    processed = masks.grammar(ops, processed, rows)
    valid = ops.isfinite_row(raw)
    if processed is not raw:
        valid = valid & ops.isfinite_row(processed)
    routes: dict[Route, list[int]] = {}
    for index, row in enumerate(rows):
        routes.setdefault(Route.of(row), []).append(index)
    everything = Candidates(ops, processed, processed.shape[-1], spare=processed is not raw)
    parts = [
        part
        for route, members in routes.items()
        for part in _drawn(route, route.stages, everything.rows(members), rows, members)
    ]
    tokens = _gathered(ops, parts, [part.tokens for part in parts])
    surprises: Array | None = None
    if any(part.surprises is not None for part in parts):
        nothing = [ops.float32(np.zeros(len(part.members), np.float32)) for part in parts]
        each = [n if p.surprises is None else p.surprises for p, n in zip(parts, nothing, strict=True)]
        surprises = _gathered(ops, parts, each)
    if all(each.top_logprobs is None for each in parameters):
        return Drawn(tokens, valid, surprises=surprises)
    left = _gathered(ops, parts, [part.left.spread().logits for part in parts])
    return Drawn(tokens, valid, *reported(ops, raw, left, tokens, parameters), surprises)


def _gathered(ops: Ops, parts: Sequence[_Part], arrays: Sequence[Array]) -> Array:
    """The parts' arrays as one, in the order of the rows."""
    order = np.argsort(np.concatenate([part.members for part in parts])).tolist()
    joined = arrays[0] if len(arrays) == 1 else ops.concat(arrays, 0)
    return joined if order == list(range(len(order))) else ops.take(joined, order)


def _drawn(
    route: Route, stages: Sequence[str], candidates: Candidates, rows: Sequence[RowDraw], members: list[int]
) -> list[_Part]:
    """Run the stages, and draw."""
    if not stages:
        return _ended(route, candidates, rows, members)
    stage, rest = stages[0], stages[1:]
    if stage == "top_p" and candidates.ids is None:

        def go_on(some: Candidates, which: list[int]) -> list[_Part]:
            cut = truncation.top_p(some, [rows[i].sampling for i in which])
            return _drawn(route, rest, cut, rows, which)

        def holds(head: Candidates, which: Sequence[int]) -> np.ndarray | None:
            return holds_top_p(head, [rows[i].sampling for i in which])

        return _apart(candidates, members, holds, go_on)
    staged = _staged(stage, candidates, [rows[i] for i in members], route.head)
    return _drawn(route, rest, staged, rows, members)


def _ended(route: Route, candidates: Candidates, rows: Sequence[RowDraw], members: list[int]) -> list[_Part]:
    if route.end == "greedy":
        return [_Part(members, candidates.ops.argmax(candidates.logits), candidates, None)]
    if route.end == "draw":
        return [_picked(candidates.settled(), rows, members, surprise=False)]
    mus = {i: mirostat.initial(rows[i].sampling) if (mu := rows[i].mu) is None else mu for i in members}
    cut = mirostat.cut_by_estimate if route.end == "mirostat 1" else mirostat.cut_by_bound

    def holds(head: Candidates, which: Sequence[int]) -> np.ndarray | None:
        version = 1 if route.end == "mirostat 1" else 2
        return holds_mirostat(head, version, [mus[i] for i in which])

    def go_on(some: Candidates, which: list[int]) -> list[_Part]:
        return [_picked(cut(some, [mus[i] for i in which]), rows, which, surprise=True)]

    return _apart(candidates, members, holds, go_on)


def _apart(
    candidates: Candidates,
    members: list[int],
    holds: Callable[[Candidates, Sequence[int]], np.ndarray | None],
    go_on: Callable[[Candidates, list[int]], list[_Part]],
    tried: Sequence[int] = TRIED,
) -> list[_Part]:
    """Go on with a head of each row that holds all that will be kept, or with everything: the same candidates, and for
    most distributions a tenth of the work."""
    if not tried or candidates.vocabulary <= tried[0]:
        return go_on(candidates.ordered(), members)
    head = candidates.head(tried[0])
    enough = holds(head, members)
    if enough is None:
        return go_on(candidates.ordered(), members)
    parts: list[_Part] = []
    held, others = np.flatnonzero(enough).tolist(), np.flatnonzero(~enough).tolist()
    if held:
        parts += go_on(head.rows(held), [members[i] for i in held])
    if others:
        which = [members[i] for i in others]
        parts += _apart(candidates.rows(others), which, holds, go_on, tried[1:])
    return parts


def _staged(stage: str, candidates: Candidates, rows: Sequence[RowDraw], head: int | None) -> Candidates:
    settings = [row.sampling for row in rows]
    width = candidates.logits.shape[-1] if head is None else head
    match stage:
        case "penalties" | "dry":
            return _penalised(stage, candidates, rows)
        case "top_n_sigma":
            return truncation.top_n_sigma(candidates, settings)
        case "top_k":
            return truncation.top_k(candidates, settings, width)
        case "typical_p":
            return truncation.typical_p(candidates, settings)
        case "top_p":
            return truncation.top_p(candidates, settings)
        case "min_p":
            return truncation.min_p(candidates, settings)
        case "xtc":
            return xtc(candidates, settings, width)
        case "temperature":
            return temperature(candidates, settings)
    raise ValueError(f"there is no stage {stage!r}")


def _penalised(stage: str, candidates: Candidates, rows: Sequence[RowDraw]) -> Candidates:
    spread = candidates.spread()
    settings, histories = [row.sampling for row in rows], [row.history for row in rows]
    scale = 1.0 if spread.divisor is None else spread.divisor
    if stage == "penalties":
        changed = penalties.penalties(
            spread.ops, spread.logits, settings, histories, scale, spare=spread.spare
        )
    else:
        breakers = [row.parameters.breakers for row in rows]
        changed = dry.dry(spread.ops, spread.logits, settings, histories, breakers, scale, spare=spread.spare)
    return spread if changed is spread.logits and not spread.spare else spread.with_logits(changed)


def _picked(candidates: Candidates, rows: Sequence[RowDraw], members: list[int], *, surprise: bool) -> _Part:
    ops = candidates.ops
    masses = candidates.masses()
    drawn = [uniform(rows[i].parameters.seed, rows[i].position) for i in members]
    chosen = invert(ops, masses, drawn)
    tokens, surprises = chosen, None
    if candidates.ids is not None:
        tokens = ops.gather(ops.to_int(candidates.ids), chosen[:, None])[:, 0]
    if surprise:
        share = ops.gather(masses, chosen[:, None])[:, 0] / ops.row_sum(masses)[:, 0]
        surprises = ops.log(share) * (-1 / math.log(2))
    return _Part(members, tokens, candidates, surprises)
