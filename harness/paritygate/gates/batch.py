"""The batch gate: a row says beside others what it says alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paritygate.arms.base import Arm, ArmError
from paritygate.case import Case
from paritygate.compare.comparison import Comparison
from paritygate.compare.context import read_tokens, too_short
from paritygate.compare.identity import EXECUTION, SETTINGS, compare
from paritygate.compare.logprobs import largest_difference
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.claims import every_arm
from paritygate.gates.replies import REPEATS, check_of, could_not_run, unless_unsteady
from paritygate.policy import BatchClaim, Policy
from paritygate.stream import Stream
from paritygate.verdict import Check, Verdict

GATE = "batch"
TOKENS_DIFFER = (Verdict.DIVERGED, Verdict.LENGTH)


@dataclass(frozen=True)
class _Row:
    """One case, alone and beside the others."""

    case: Case
    alone: Stream
    beside: Stream
    found: Comparison


def _rows_in_batch(stream: Stream) -> int | None:
    return stream.counters.get("max_rows")


def _found(case: Case, alone: Stream, beside: Stream, floor: float, limit: float) -> Comparison:
    if short := too_short(case, alone, beside):
        return short
    found = compare(alone, beside, floor=floor, settings=SETTINGS + EXECUTION)
    if found.verdict is not Verdict.IDENTICAL:
        return found
    if _rows_in_batch(beside) == 1:
        what = "the row was never in a batch with another: nothing was compared"
        return Comparison(Verdict.NOT_RUN, what, found.details)
    apart = largest_difference(alone, beside)
    distance = None if apart is None else apart.distance
    if apart is not None and not apart.distance <= limit:
        what = f"the same answer, but logprobs outside the envelope: {apart.outside(limit)}"
        details = {"logprob_distance": distance, "worst": apart.to_json()}
        return Comparison(Verdict.DIVERGED, what, found.details | details)
    told = "not told" if distance is None else f"{distance:.2g}"
    rows = _rows_in_batch(beside)
    beside_others = "beside the others" if rows is None else f"in a batch of {rows}"
    headline = f"{found.headline} {beside_others}; largest |Δlogprob| {told}"
    return Comparison(found.verdict, headline, found.details | {"logprob_distance": distance})


def _anothers_seed(arm: Arm, row: _Row, cases: tuple[Case, ...]) -> str:
    """Whether the row says what it would say alone with the seed of a neighbour."""
    for other in cases:
        seed = other.sampler.seed
        if seed is None or seed == row.case.sampler.seed or row.case.sampler.temperature == 0:
            continue
        asked = msgspec.structs.replace(
            row.case, sampler=msgspec.structs.replace(row.case.sampler, seed=seed)
        )
        told = arm.repeat(asked, 1)[0]
        shared = sum(a == b for a, b in zip(told.token_ids or (), row.beside.token_ids or (), strict=False))
        first = (told.token_ids or (None,))[0] == (row.beside.token_ids or (None,))[0]
        if told.token_ids == row.beside.token_ids or (first and shared > 1):
            return f"it draws with the seed of {other.name} ({seed}) instead of its own ({row.case.sampler.seed})"
    return ""


def _drawn(rows: list[_Row], row: _Row) -> str:
    """Whether exactly rows that draw at random differ, while greedy ones beside them do not."""
    differ = [each for each in rows if each.found.verdict in TOKENS_DIFFER]
    greedy = [each for each in rows if each.case.sampler.temperature == 0]
    if row not in differ or not greedy or any(each in differ for each in greedy):
        return ""
    return (
        f"only rows that draw at random differ ({len(differ)} of {len(rows) - len(greedy)}), greedy ones beside them "
        "do not: a row's draw depends on its neighbours"
    )


def _padding(rows: list[_Row], row: _Row) -> str:
    """Whether exactly the rows that are shorter than the longest differ: those that a batch pads."""
    lengths = {each.case.name: read_tokens(each.alone) for each in rows}
    known = [length for length in lengths.values() if length is not None]
    if len(known) < len(rows) or len(set(known)) < 2:
        return ""
    differ = {each.case.name for each in rows if each.found.verdict in TOKENS_DIFFER}
    longest = {name for name, length in lengths.items() if length == max(known)}
    if differ & longest or row.case.name not in differ:
        return ""
    return (
        f"rows that are padded differ ({len(differ)} of {len(rows) - len(longest)}), the longest of the batch does "
        "not: padding is attended to, or moves positions"
    )


def _together(arm: Arm, cases: tuple[Case, ...]) -> tuple[Stream, ...]:
    """All rows at once, asked again where one was done before another came: on a busy machine a batch can miss."""
    for _ in range(REPEATS):
        arm.reset()
        beside = arm.together(cases)
        if all(_rows_in_batch(stream) != 1 for stream in beside):
            break
    return beside


def _checks(
    claim_name: str,
    claim: BatchClaim,
    arm_name: str,
    cases: tuple[Case, ...],
    policy: Policy,
    arms: ArmPool,
    progress: Callable[[str], None],
) -> Iterator[Check]:
    prefix, started = f"batch/{claim_name}/{arm_name}", time.monotonic()
    floor, limit = policy.goldens.margin_floor, policy.envelopes[claim.envelope].max_abs_logit
    try:
        with arms.use(arm_name) as arm:
            if not arm.capabilities.batches:
                raise ArmError(
                    f"arm {arm_name} answers one case at a time: a batch claim needs several at once"
                )
            progress(f"batch: {arm_name}, {len(cases)} rows alone, then together")
            alone = [arm.repeat(case, 1)[0] for case in cases]
            beside = _together(arm, cases)
            rows = [
                _Row(case, one, other, _found(case, one, other, floor, limit))
                for case, one, other in zip(cases, alone, beside, strict=True)
            ]
            for row in rows:
                found = row.found
                if found.verdict in TOKENS_DIFFER:
                    found = unless_unsteady(found, arm, row.case, row.alone, floor=floor)
                if found.verdict in TOKENS_DIFFER:
                    why = _anothers_seed(arm, row, cases) or _drawn(rows, row) or _padding(rows, row)
                    what = f"beside others the row says something else than alone: {found.headline}"
                    headline = f"{why}; {what}" if why else what
                    found = Comparison(found.verdict, headline, found.details)
                yield check_of(
                    GATE,
                    f"{prefix}/{row.case.name}",
                    found,
                    seconds=time.monotonic() - started,
                    manifests={arm_name: row.beside.manifest},
                    counters={"alone": row.alone.counters, "beside": row.beside.counters},
                )
                started = time.monotonic()
    except ArmError as error:
        arms.drop(arm_name)
        yield could_not_run(GATE, f"{prefix}/setup", error, time.monotonic() - started)


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every batch claim, its arms side by side."""
    every = policy.all_cases(root)

    def checks(name: str, claim: BatchClaim, arm: str, pool: ArmPool) -> Iterator[Check]:
        return _checks(name, claim, arm, tuple(every[case] for case in claim.cases), policy, pool, progress)

    yield from every_arm(policy, BatchClaim, arms, checks)
