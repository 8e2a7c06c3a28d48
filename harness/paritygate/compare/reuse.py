"""What a prompt-cache hit must show beside saying the same thing: that it reused tokens, and where it cut."""

from __future__ import annotations

from paritygate.compare.comparison import Comparison
from paritygate.stream import Stream
from paritygate.verdict import Verdict


def pieces_of(stream: Stream) -> list[tuple[int, int]] | None:
    """The prefill forwards that were run, as (start, end)."""
    told = stream.counters.get("prefill_pieces")
    return None if told is None else [(start, end) for start, end in told]


def _cached(stream: Stream) -> int | None:
    return stream.usage.cached_tokens if stream.usage is not None else None


def partition_fault(cold: Stream, hit: Stream) -> str:
    """Why a hit did not run exactly the forwards of the cold run's tail; "" where it did, or cannot be known."""
    cold_pieces, hit_pieces, reused = pieces_of(cold), pieces_of(hit), _cached(hit)
    if cold_pieces is None or hit_pieces is None or reused is None:
        return ""
    boundaries = [start for start, _ in cold_pieces] + [end for _, end in cold_pieces[-1:]]
    if reused not in boundaries:
        below = max((b for b in boundaries if b < reused), default=0)
        many = "one token" if reused - below == 1 else f"{reused - below} tokens"
        return f"the hit reused {reused} tokens, {many} too many: the cold run cut at {below}"
    if hit_pieces and hit_pieces[0][0] != reused:
        apart = hit_pieces[0][0] - reused
        kind = "skipped" if apart > 0 else "fed twice"
        return f"the hit says that it reused {reused} tokens and went on at {hit_pieces[0][0]}: {abs(apart)} {kind}"
    if hit_pieces != [piece for piece in cold_pieces if piece[0] >= reused]:
        return f"after {reused} reused tokens the hit ran {hit_pieces}, the cold run {cold_pieces}"
    if not hit_pieces:
        return f"the hit reused all {reused} tokens of the prompt and ran nothing"
    return ""


def too_far(before: Stream, hit: Stream) -> str:
    """Why a hit adopted more than the prompts share; "" where it did not, or cannot be known."""
    ours, theirs, reused = before.prompt_token_ids, hit.prompt_token_ids, _cached(hit)
    if ours is None or theirs is None or reused is None:
        return ""
    pairs = enumerate(zip(ours, theirs, strict=False))
    shared = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
    if reused <= shared:
        return ""
    many = "one token" if reused - shared == 1 else f"{reused - shared} tokens"
    return f"the hit reused {reused} tokens, {many} too many: its prompt shares {shared} with the one before"


def given_up(again: Stream, stored: Stream) -> Comparison:
    """HELD where a prompt that was pushed out was found less far than by the hit after it; NOT_RUN where it was not."""
    found, whole = _cached(again), _cached(stored)
    details = {
        "cached_tokens": [found, whole],
        "prefill_pieces": [again.counters.get("prefill_pieces"), stored.counters.get("prefill_pieces")],
    }
    if found is None or whole is None:
        return Comparison(Verdict.NOT_RUN, "the arm does not say how many tokens it reused", details)
    if found >= whole:
        what = f"{found} of {whole} tokens were still there: nothing was pushed out, make the crowd larger"
        return Comparison(Verdict.NOT_RUN, f"{what}, or the arm's cache smaller", details)
    return Comparison(Verdict.HELD, f"{found} of {whole} tokens were left", details)


def reused(cold: Stream, hit: Stream) -> Comparison:
    """HELD where the cold run reused nothing and the hit did; BROKEN names what is wrong."""
    first, then = _cached(cold), _cached(hit)
    details = {
        "cached_tokens": [first, then],
        "prefill_pieces": [cold.counters.get("prefill_pieces"), hit.counters.get("prefill_pieces")],
        "split_points": cold.counters.get("split_points"),
    }
    if first is None or then is None:
        return Comparison(Verdict.NOT_RUN, "the arm does not say how many tokens it reused", details)
    if first != 0:
        return Comparison(Verdict.BROKEN, f"the cold run reused {first} tokens: it was not cold", details)
    if then == 0:
        return Comparison(
            Verdict.BROKEN, "nothing was reused (cached_tokens is 0): no hit was tested", details
        )
    if fault := partition_fault(cold, hit):
        return Comparison(Verdict.BROKEN, fault, details)
    return Comparison(
        Verdict.HELD, f"reused {then} of {len(hit.prompt_token_ids or ())} prompt tokens", details
    )
