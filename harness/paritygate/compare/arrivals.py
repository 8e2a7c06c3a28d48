"""Whether a streamed answer came as it was made, or in one burst at the end."""

from __future__ import annotations

from typing import Any

from paritygate.compare.comparison import Comparison
from paritygate.stream import Stream
from paritygate.verdict import Verdict

# Of the time that the tokens took, how much the arrivals must span. Two tokens may share an event, and the last
# events may be sent together, so not all of it.
SPAN = 0.5
PIECES = 16
# Shorter answers tell nothing: a reader that is not scheduled for a tenth of a second finds all of them at once.
TELLING_NS = 150_000_000
# Of the whole time since the request, where a server does not tell how long it decoded: prefill may take most of it,
# but a burst takes next to nothing.
SPAN_OF_WHOLE = 0.05


def _tokens(stream: Stream) -> int:
    if stream.token_ids is not None:
        return len(stream.token_ids)
    return stream.usage.completion_tokens if stream.usage is not None else len(stream.arrivals_ns or ())


def spread_of(streams: list[Stream]) -> Comparison:
    """HELD where every streamed answer of at least PIECES tokens, made in at least TELLING_NS, arrived over the time
    that it was decoded in."""
    rows: list[dict[str, Any]] = []
    for stream in streams:
        arrivals, decode_ns = stream.arrivals_ns, sum(stream.timings.get("token_ns", ()))
        if not arrivals or _tokens(stream) < PIECES:
            continue
        whole_ns = decode_ns or arrivals[-1]
        if whole_ns < TELLING_NS:
            continue
        rows.append(
            {
                "case": stream.case,
                "pieces": len(arrivals),
                "span_ns": arrivals[-1] - arrivals[0],
                "of": "decode time" if decode_ns else "time since the request",
                "of_ns": whole_ns,
                "share": (arrivals[-1] - arrivals[0]) / whole_ns,
                "demanded": SPAN if decode_ns else SPAN_OF_WHOLE,
            }
        )
    if not rows:
        return Comparison(
            Verdict.NOT_RUN, "no streamed answer was long enough to show when its pieces arrived"
        )
    worst = min(rows, key=lambda row: row["share"] / row["demanded"])
    share, of = worst["share"], worst["of"]
    details = {"answers": rows, "worst": worst["case"]}
    if share < worst["demanded"] or worst["pieces"] < 2:
        what = (
            f"{worst['case']} arrived in one burst: {worst['pieces']} pieces within {share:.0%} of its {of}"
        )
        return Comparison(Verdict.BROKEN, what, details)
    return Comparison(
        Verdict.HELD, f"pieces arrived over at least {share:.0%} of the {of} in {len(rows)} answers", details
    )
