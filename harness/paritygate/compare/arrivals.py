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
LONG_TOKEN = 16  # bytes: where no tokens are told, a text holds one for so many at least
# Shorter answers tell nothing: a reader that is not scheduled for a tenth of a second finds all of them at once.
TELLING_NS = 150_000_000
# Of the whole time since the request, where a server does not tell how long it decoded: prefill may take most of it,
# but a burst takes next to nothing.
SPAN_OF_WHOLE = 0.05


def tokens_of(stream: Stream) -> int:
    """Tokens of an answer, as far as the arm tells; else the pieces that it came in, or as many as its text holds at
    least."""
    if stream.token_ids is not None:
        return len(stream.token_ids)
    if stream.usage is not None:
        return stream.usage.completion_tokens
    return max(len(stream.arrivals_ns or ()), len(stream.text_bytes) // LONG_TOKEN)


def spread_of(streams: list[Stream]) -> Comparison:
    """HELD where every streamed answer of at least PIECES tokens, made in at least TELLING_NS, arrived over the time
    that it was decoded in; INCONCLUSIVE where none is as long."""
    rows: list[dict[str, Any]] = []
    for stream in streams:
        arrivals, decode_ns = stream.arrivals_ns, sum(stream.timings.get("token_ns", ()))
        if not arrivals or tokens_of(stream) < PIECES:
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
        return _telling_nothing(streams)
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


def _telling_nothing(streams: list[Stream]) -> Comparison:
    """NOT_RUN where nothing was streamed; INCONCLUSIVE, with what is missing, where every answer was too short."""
    streamed = [stream for stream in streams if stream.arrivals_ns]
    if not streamed:
        return Comparison(Verdict.NOT_RUN, "no answer came in pieces: the arm did not stream")
    longest = max(streamed, key=tokens_of)
    took_ns = sum(longest.timings.get("token_ns", ())) or (longest.arrivals_ns or (0,))[-1]
    what = (
        f"every answer was too short to show when its pieces arrived: the longest, of case {longest.case}, has "
        f"{tokens_of(longest)} tokens in {took_ns / 1e9:.2f} s; name in `cases` of this claim one more whose answer "
        f"has at least {PIECES} tokens and takes {TELLING_NS / 1e9:g} s, by a prompt that asks for much and a larger "
        "`max_tokens`"
    )
    return Comparison(Verdict.INCONCLUSIVE, what, {"longest": longest.case, "tokens": tokens_of(longest)})
