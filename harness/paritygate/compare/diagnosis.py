"""Where a difference comes from: known ways of going wrong, each recognised by what only it leaves behind."""

from __future__ import annotations

from paritygate.stream import Stream

REPLACEMENT = "�"


def end_of_sequence_pushed(reference: Stream, candidate: Stream) -> str:
    """The answer holds the end-of-sequence token that should only have ended it."""
    ours, theirs = reference.token_ids or (), candidate.token_ids or ()
    if reference.finish_cause != "Eos" or len(theirs) <= len(ours) or theirs[: len(ours)] != ours:
        return ""
    end = reference.position(len(ours))
    extra = theirs[len(ours)]
    if end is not None and end.token_id != extra:
        return ""
    named = f" {end.token!r}" if end is not None else ""
    return f"the end-of-sequence token{named} ({extra}) was pushed into the answer, at {len(ours)}"


def tail_not_flushed(reference: Stream, candidate: Stream) -> str:
    """The tokens are all there and the text stops early: what the detokenizer held back was never sent."""
    ours, theirs = reference.text_bytes, candidate.text_bytes
    if len(theirs) >= len(ours) or not ours.startswith(theirs):
        return ""
    lost = ours[len(theirs) :].decode("utf-8", errors="replace")
    if None not in (reference.token_ids, candidate.token_ids):
        if reference.token_ids != candidate.token_ids:
            return ""
        return f"the last flush is missing: the tokens agree, but the text lacks its tail {lost!r}"
    # Without ids a shorter text may be a shorter answer, unless both sides count as many tokens.
    counts = [
        side.usage.completion_tokens if side.usage is not None else None for side in (reference, candidate)
    ]
    if counts[0] is None or counts[0] != counts[1]:
        return ""
    return (
        f"the last flush is missing: both count {counts[0]} tokens and the text agrees ({len(theirs)} bytes), but "
        f"lacks its tail {lost!r}"
    )


def half_characters(reference: Stream, candidate: Stream) -> str:
    """A character whose bytes span tokens was sent in halves."""
    extra = candidate.text.count(REPLACEMENT) - reference.text.count(REPLACEMENT)
    return f"{extra} more U+FFFD than the reference: a character was sent in halves" if extra > 0 else ""


def stop_not_applied(reference: Stream, candidate: Stream) -> str:
    """One side stopped at a stop string, the other ran on."""
    if reference.finish_cause != "StopSequence" or candidate.finish_cause == "StopSequence":
        return ""
    return "the stop string did not end the answer" if candidate.text.startswith(reference.text) else ""


def other_partition(reference: Stream, candidate: Stream) -> str:
    """The prompts were prefilled in other pieces, which may round differently."""
    ours, theirs = reference.counters.get("prefill_pieces"), candidate.counters.get("prefill_pieces")
    if ours is None or theirs is None or ours == theirs:
        return ""
    if theirs and ours[-len(theirs) :] == theirs:
        return ""  # a hit, which runs the cold run's last pieces
    return f"the prefill partition differs: {ours} against {theirs}"


def causes(reference: Stream, candidate: Stream) -> list[str]:
    """Every known cause that fits, the most telling first."""
    found = [
        end_of_sequence_pushed(reference, candidate),
        tail_not_flushed(reference, candidate),
        half_characters(reference, candidate),
        stop_not_applied(reference, candidate),
        other_partition(reference, candidate),
    ]
    return [cause for cause in found if cause]
