"""Whether a streamed answer came as it was made, or in one burst at the end."""

from __future__ import annotations

from paritygate.compare.comparison import Comparison
from paritygate.stream import Stream
from paritygate.verdict import Verdict

# Of the time that the tokens took, how much the arrivals must span. Two tokens may share an event, and the last
# events may be sent together, so not all of it.
SPAN = 0.5
PIECES = 16


def spread_of(streams: list[Stream]) -> Comparison:
    """HELD where every streamed answer of at least PIECES tokens arrived over the time that it was decoded in."""
    rows = []
    for stream in streams:
        arrivals, decode_ns = stream.arrivals_ns, sum(stream.timings.get("token_ns", ()))
        if arrivals is None or decode_ns == 0 or len(stream.token_ids or ()) < PIECES:
            continue
        span = arrivals[-1] - arrivals[0] if arrivals else 0
        rows.append({"case": stream.case, "pieces": len(arrivals), "span_ns": span, "decode_ns": decode_ns})
    if not rows:
        return Comparison(
            Verdict.NOT_RUN, "no streamed answer was long enough to show when its pieces arrived"
        )
    worst = min(rows, key=lambda row: row["span_ns"] / row["decode_ns"])
    share = worst["span_ns"] / worst["decode_ns"]
    details = {"answers": rows, "demanded_share": SPAN}
    if share < SPAN or worst["pieces"] < 2:
        what = f"{worst['case']} arrived in one burst: {worst['pieces']} pieces within {share:.0%} of its decode time"
        return Comparison(Verdict.BROKEN, what, details)
    return Comparison(
        Verdict.HELD,
        f"pieces arrived over at least {share:.0%} of the decode time in {len(rows)} answers",
        details,
    )
