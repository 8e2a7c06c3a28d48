"""The performance gate: work counters exactly, times against a base commit, red only when seen twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.bench.base import Base, NoBase, choose_base, same_engine
from paritygate.bench.decide import Decision
from paritygate.bench.observation import FIGURES, UNITS, Observation, Workload, figure
from paritygate.bench.pairs import BenchError, Side, base_checkout, observe_side
from paritygate.bench.session import Observe, Session, first_difference, run_session
from paritygate.bench.settings import BenchPolicy
from paritygate.bench.work import expected_work, more_work, work_faults
from paritygate.golden.store import GoldenError, Store
from paritygate.verdict import Check, Outcome, Verdict

if TYPE_CHECKING:
    from paritygate.policy import Policy

GATE = "bench"
OUTCOMES = {
    Verdict.NO_SLOWER: Outcome.PASS,
    Verdict.SLOWER: Outcome.FAIL,
    Verdict.INCONCLUSIVE: Outcome.INCONCLUSIVE,
}


def workload_of(policy: Policy, root: Path) -> Workload:
    """What the gate's processes run. Raises BenchError when the golden that it names is not there."""
    bench = policy.bench
    prompt: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    if bench.case:
        try:
            golden = Store(root / policy.goldens.directory).load(bench.case)
        except GoldenError as error:
            raise BenchError(f"[bench] case: {error}") from None
        if len(golden.token_ids) < bench.decode_tokens:
            raise BenchError(f"[bench] case: golden {bench.case} has {len(golden.token_ids)} tokens, "
                             f"decode_tokens asks for {bench.decode_tokens}")  # fmt: skip
        prompt, expected = golden.prompt_token_ids, golden.token_ids[: bench.decode_tokens]
    return Workload(
        kind="tokenline",
        options={"backend": bench.backend, "dtype": bench.dtype, "threads": bench.threads},
        model=policy.checkpoint.location,
        decode_prompt=prompt,
        expected=expected,
        prompt_tokens=bench.prompt_tokens,
        decode_tokens=bench.decode_tokens,
        warmup_tokens=bench.warmup_tokens,
        threads=bench.threads,
    )


def run(policy: Policy, root: Path, progress: Callable[[str], None], wanted: str = "") -> Iterator[Check]:
    """The gate as `paritygate verify` calls it; `wanted` names another base."""
    try:
        head = Side("head", root, workload_of(policy, root))
        base = choose_base(root, wanted)
    except NoBase as error:
        yield from _alone(head, progress, f"Nothing to compare with: {error}.", Verdict.NOT_RUN)
        return
    except BenchError as error:
        yield _could_not_run(str(error))
        return
    if same_engine(root, base):
        line = f"engine/ is identical to {base.revision} ({base.why}), so nothing was compared."
        yield from _alone(head, progress, line, Verdict.NO_SLOWER)
        return
    try:
        with base_checkout(root, base.revision) as checkout:
            other = Side("base", checkout, head.workload)
            progress(f"comparing with {base.revision}, {base.why}")
            yield from compare(other, head, base, policy.bench, progress)
    except BenchError as error:
        yield _could_not_run(str(error))


def compare(
    base_side: Side,
    head: Side,
    base: Base,
    policy: BenchPolicy,
    progress: Callable[[str], None],
    *,
    observe: Observe = observe_side,
) -> Iterator[Check]:
    """Both sides in one session, and in a second one when the first is red. Raises BenchError."""
    first = run_session(base_side, head, policy, progress, observe=observe)
    red = tuple(name for name in FIGURES if first.verdict(name) is Verdict.SLOWER)
    second: Session | None = None
    if red:
        progress(f"{', '.join(red)} slower in the first session: confirming in a second of fresh pairs")
        second = run_session(base_side, head, policy, progress, observe=observe, figures=red)
    before, after = first.pairs[0]
    faults = work_faults(after) + more_work(before, after)
    yield _work_check(after, faults)
    for name in FIGURES:
        yield _figure_check(name, base, first, second if name in red else None)


def _alone(head: Side, progress: Callable[[str], None], why: str, verdict: Verdict) -> Iterator[Check]:
    """One observation without a base: the counters gate, the figures are shown, nothing is compared."""
    progress("one observation for the work counters and the figures")
    try:
        seen = observe_side(head)
    except BenchError as error:
        yield _could_not_run(str(error))
        return
    wrong = first_difference(seen.token_ids, head.workload.expected) if head.workload.expected else None
    faults = work_faults(seen)
    if wrong is not None:
        faults.append(f"token {wrong} is not the golden's, so other work was counted")
    yield _work_check(seen, faults)
    for name in FIGURES:
        value = figure(seen, name)
        yield Check(
            gate=GATE,
            name=f"{GATE}/{name}",
            outcome=Outcome.PASS,
            verdict=verdict,
            headline=f"{why} {_title(name)} takes {_time(value)}{_per(name)} here{_limit(name, seen)}.",
            details={"figures": {name: _figure(name, seen, value)}},
        )


def _work_check(seen: Observation, faults: list[str]) -> Check:
    tokens = len(seen.token_ids)
    return Check(
        gate=GATE,
        name=f"{GATE}/work",
        outcome=Outcome.FAIL if faults else Outcome.PASS,
        verdict=Verdict.BROKEN if faults else Verdict.HELD,
        headline=f"{'; '.join(faults)}."
        if faults
        else f"One forward, one host read and one head position per token, over {tokens} tokens.",
        details={"counters": seen.decode_counters, "expected": expected_work(seen), "faults": faults},
    )


def _figure_check(name: str, base: Base, first: Session, second: Session | None) -> Check:
    decision = first.decisions[name]
    verdict = decision.verdict
    if second is not None and second.verdict(name) is not Verdict.SLOWER:
        verdict = Verdict.INCONCLUSIVE
    before, after = first.median(name, head=False), first.median(name, head=True)
    seen = first.pairs[-1][1]
    change = f"{_time(after)}{_per(name)} here, {_time(before)} at {base.revision}"
    title = _title(name)
    if verdict is Verdict.SLOWER and second is not None:
        headline = (
            f"{title} is {_percent(decision.ratio)} slower: {change} (+{after - before:,.0f} {UNITS[name]}); "
            f"at least {_percent(decision.low)} in {decision.pairs} pairs, confirmed in a second session "
            f"({_percent(second.decisions[name].ratio)} in {second.decisions[name].pairs})."
        )
    elif verdict is Verdict.NO_SLOWER:
        headline = (
            f"{title} is no slower: {change}; at most {_percent(max(decision.high, 1))} "
            f"within the margin of {decision.margin:.0%}, {decision.pairs} pairs{_limit(name, seen)}."
        )
    else:
        headline = f"{title} is not decided: {change}; {_undecided(decision, second, seen)}."
    return Check(
        gate=GATE,
        name=f"{GATE}/{name}",
        outcome=OUTCOMES[verdict],
        verdict=verdict,
        headline=headline,
        details={
            "figures": {
                name: {
                    **_figure(name, seen, after),
                    "base_ns": before,
                    "base": base.revision,
                    "base_token_ns": list(first.pairs[-1][0].token_ns) if name == "decode" else [],
                    "pairs_ns": [[figure(pair[0], name), figure(pair[1], name)] for pair in first.pairs],
                    "margin": decision.margin,
                    "decision": _json(decision),
                    "confirmation": _json(second.decisions[name]) if second else None,
                }
            },
            "void": first.void + (second.void if second else []),
        },
        seconds=(first.seconds + (second.seconds if second else 0)) / len(FIGURES),
    )


def _undecided(decision: Decision, second: Session | None, seen: Observation) -> str:
    busy = ""
    if (cores := os.cpu_count()) and seen.load_average > cores:
        busy = f" (the machine was busy: load {seen.load_average:.1f} on {cores} cores)"
    if second is not None:
        return f"slower in the first session, not in the second{busy}"
    return (
        f"between {_percent(decision.low)} and {_percent(decision.high)} after {decision.pairs} pairs, "
        f"the margin is {decision.margin:.0%}{busy}"
    )


def _figure(name: str, seen: Observation, value: float) -> dict[str, Any]:
    return {
        "unit": UNITS[name],
        "lower_is_better": True,
        "ns": value,
        "memory_floor_ns": seen.memory_floor_ns if name == "decode" else None,
        "weight_bytes": seen.weight_bytes,
        "read_bytes_per_second": seen.read_bytes_per_second,
        "token_ns": list(seen.token_ns) if name == "decode" else [],
        "prefill_tokens": (seen.prefill_counters.get("prefill_pieces") or [[0, 0]])[-1][1],
        "prefill_pieces": seen.prefill_counters.get("prefill_pieces"),
        "backend": seen.manifest.get("backend"),
        "dtype": seen.manifest.get("dtype"),
        "threads": seen.manifest.get("threads"),
    }


def _json(decision: Decision) -> dict[str, Any]:
    # JSON has no infinity: a bound that does not exist yet is null.
    return {key: None if value in (float("inf"), 0.0) else value for key, value in asdict(decision).items()}


def _could_not_run(why: str) -> Check:
    return Check(
        GATE, f"{GATE}/run", Outcome.COULD_NOT_RUN, Verdict.SETUP_ERROR, f"Nothing was measured: {why}."
    )


def _title(name: str) -> str:
    return name.replace("-", " ").capitalize()


def _time(ns: float) -> str:
    return f"{ns / 1e6:,.2f} ms" if ns >= 1e6 else f"{ns / 1e3:,.1f} µs"


def _per(name: str) -> str:
    return UNITS[name].removeprefix("ns")


def _percent(ratio: float) -> str:
    return (
        "an unknown amount"
        if ratio in (0.0, float("inf"))
        else f"{(ratio - 1) * 100:+.1f} %".replace("+", "")
    )


def _limit(name: str, seen: Observation) -> str:
    if name != "decode" or not seen.weight_bytes:
        return ""
    floor = seen.memory_floor_ns
    return (
        f"; reading the {seen.weight_bytes / 1e6:,.0f} MB of weights once takes {_time(floor)} at "
        f"{seen.read_bytes_per_second / 1e9:.1f} GB/s, {floor / seen.decode_ns:.0%} of that"
    )
