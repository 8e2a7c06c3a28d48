"""Work counters: exact on any machine, so they gate exactly."""

from __future__ import annotations

from paritygate.bench.observation import Observation

DECODE = ("decode_forwards", "host_reads", "head_positions", "prefill_forwards", "max_rows")


def expected_work(observation: Observation) -> dict[str, int]:
    """What decoding n tokens alone takes: the prefill draws the first, then one forward and one read a token.

    The head runs at one position a token: a head over the whole prompt would show here.
    """
    tokens = len(observation.token_ids)
    return {
        "decode_forwards": tokens - 1,
        "host_reads": tokens,
        "head_positions": tokens,
        "prefill_forwards": len(observation.decode_counters.get("prefill_pieces", ())),
        "max_rows": 1,
    }


def work_faults(observation: Observation) -> list[str]:
    """Each counter that is missing or is not what the tokens take."""
    tokens = len(observation.token_ids)
    if tokens < 2:
        return [f"{tokens} tokens were decoded: there is no work to count"]
    faults = []
    for name, expected in expected_work(observation).items():
        found = observation.decode_counters.get(name)
        if found is None:
            faults.append(f"the engine reports no {name}")
        elif found != expected:
            faults.append(f"{name} is {found} for {tokens} tokens, {expected} are needed")
    pieces = observation.prefill_counters.get("prefill_pieces") or []
    heads = observation.prefill_counters.get("head_positions")
    if heads != 1:
        faults.append(
            f"a prefill of {pieces[-1][1] if pieces else 'no'} tokens ran the head at {heads} positions"
        )
    return faults


def more_work(base: Observation, head: Observation) -> list[str]:
    """The counters of decode that grew against the base."""
    grown = []
    for name in (*DECODE, "bytes_copied"):
        before, after = base.decode_counters.get(name), head.decode_counters.get(name)
        if isinstance(before, int) and isinstance(after, int) and after > before:
            grown.append(f"{name} is {after}, {before} at the base")
    return grown
