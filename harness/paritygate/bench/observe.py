"""The process that measures: `python -m paritygate.bench.observe` reads a Workload on stdin, writes an Observation.

It runs once and ends: no measurement profits from, or suffers by, what an earlier one left behind. All times are
taken here, by one clock, outside of the engine.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Protocol

import msgspec

from paritygate.arms.registry import make_arm
from paritygate.bench.bandwidth import read_bandwidth
from paritygate.bench.observation import Observation, Workload, gaps
from paritygate.bench.peers import PEERS, make_peer
from paritygate.case import Case
from paritygate.own_stdout import own_stdout
from paritygate.stream import Stream

PROMPT = (
    "On the first day the keeper of the light wrote seven lines about the wind, the ships and the tide. "
    "On the second day he wrote fourteen."
)
REPEATS = 7


class Measured(Protocol):
    """What is measured: an arm, or another engine that behaves like one."""

    def open(self) -> None: ...

    def generate(self, case: Case) -> Stream: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


class MeasurementError(Exception):
    """A measurement that would not be of what it claims to be."""


def _case(name: str, prompt: tuple[int, ...], max_tokens: int) -> Case:
    # No logprobs: they would add a sort of the whole vocabulary to every step.
    return Case(name=name, kind="bench", prompt_token_ids=prompt, max_tokens=max_tokens, logprobs=None)


def _arrivals(stream: Stream, case: Case) -> tuple[int, ...]:
    if not stream.arrivals_ns or len(stream.token_ids or ()) != case.max_tokens:
        got = len(stream.token_ids or ())
        raise MeasurementError(f"{case.name}: {got} tokens arrived where {case.max_tokens} were to be timed")
    return stream.arrivals_ns


def observe(workload: Workload, arm: Measured) -> Observation:
    """Warm an arm up and measure prefill, time to first token and decode. Raises ArmError, MeasurementError."""
    started = time.perf_counter()
    arm.open()
    open_seconds = time.perf_counter() - started
    short = workload.decode_prompt
    if not short:
        text = Case(name="text", kind="bench", prompt=PROMPT, max_tokens=1, logprobs=None)
        short = arm.generate(text).prompt_token_ids or ()
    if not short:
        raise MeasurementError("the arm reports no prompt tokens, so no prompt of a known length can be made")
    arm.generate(_case("warm-up", short, max(workload.warmup_tokens, 1)))

    # Any tokens will do for the time that a prefill takes; what matters is that there are exactly that many.
    tokens = (short * (workload.prompt_tokens // len(short) + 1))[: workload.prompt_tokens]
    long = _case("prefill", tokens, 1)
    arm.reset()
    prefilled = arm.generate(long)
    if prefilled.counters.get("cached_tokens"):
        raise MeasurementError("prefill: the prompt cache had part of the prompt, so it was not prefilled")
    pieces = prefilled.counters.get("prefill_pieces")
    if pieces and sum(stop - start for start, stop in pieces) != workload.prompt_tokens:
        raise MeasurementError(
            f"prefill: pieces {pieces} were run, {workload.prompt_tokens} tokens were sent"
        )
    prefill_ns = _arrivals(prefilled, long)[0] / workload.prompt_tokens

    first = _case("first token", short, 1)
    firsts = []
    for _ in range(REPEATS):
        arm.reset()
        firsts.append(_arrivals(arm.generate(first), first)[0])

    case = _case("decode", short, workload.decode_tokens)
    arm.reset()
    decoded = arm.generate(case)
    arrivals = _arrivals(decoded, case)
    engine = sys.modules.get("tokenline")
    return Observation(
        engine_file=str(getattr(engine, "__file__", "")),
        token_ns=gaps(arrivals),
        prefill_ns=prefill_ns,
        first_token_ns=float(sorted(firsts)[len(firsts) // 2]),
        token_ids=decoded.token_ids or (),
        prompt_tokens=len(short),
        decode_counters=decoded.counters,
        prefill_counters=prefilled.counters,
        manifest=decoded.manifest,
        weight_bytes=int(decoded.manifest.get("weight_bytes", 0)),
        read_bytes_per_second=read_bandwidth(),
        load_average=os.getloadavg()[0],
        open_seconds=open_seconds,
    )


def main() -> None:
    """Read, measure, write: the observation is the only thing on stdout."""
    workload = msgspec.json.decode(sys.stdin.buffer.read(), type=Workload)
    output = own_stdout()
    arm: Measured
    if workload.kind in PEERS:
        arm = make_peer(workload.kind, workload.options, workload.model)
    else:
        arm = make_arm("observed", workload.kind, workload.options, workload.model)
    try:
        observation = observe(workload, arm)
    finally:
        with contextlib.suppress(Exception):
            arm.close()
    output.write(msgspec.json.encode(observation))
    output.flush()


if __name__ == "__main__":
    main()
