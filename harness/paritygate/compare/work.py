"""Whether an answer took more work than its tokens do: counters are exact on any machine."""

from __future__ import annotations

from paritygate.compare.comparison import Comparison
from paritygate.stream import Stream
from paritygate.verdict import Verdict

# An answer that ends by itself decides one token more than it says, and the forward of the next may be under way.
AHEAD = 2
COUNTERS = ("head_positions", "decode_forwards", "host_reads")


def work_faults(stream: Stream) -> list[str]:
    """Counters that are above one a token; none where the arm tells no counters."""
    limit = len(stream.token_ids or ()) + AHEAD
    said = []
    for name in COUNTERS:
        count = stream.counters.get(name)
        if isinstance(count, int) and count > limit:
            what = (
                "the head ran over the prompt" if name == "head_positions" else "work is done more than once"
            )
            said.append(f"{stream.case}: {name} is {count} for {limit - AHEAD} tokens: {what}")
    return said


def work_of(streams: list[Stream]) -> Comparison | None:
    """HELD or BROKEN over all streams that tell counters; None where none does."""
    told = [stream for stream in streams if any(name in stream.counters for name in COUNTERS)]
    if not told:
        return None
    faults = [fault for stream in told for fault in work_faults(stream)]
    tokens = sum(len(stream.token_ids or ()) for stream in told)
    details = {"answers": len(told), "tokens": tokens, "faults": faults}
    if faults:
        return Comparison(Verdict.BROKEN, "; ".join(faults[:3]), details)
    what = f"one head position, one forward and one read a token, over {tokens} tokens in {len(told)} answers"
    return Comparison(Verdict.HELD, what, details)
