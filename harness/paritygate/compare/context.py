"""Whether an arm read as long a prompt as its case is about."""

from __future__ import annotations

from paritygate.case import Case
from paritygate.compare.comparison import Comparison
from paritygate.stream import Stream
from paritygate.verdict import Verdict


def read_tokens(stream: Stream) -> int | None:
    """Prompt tokens that the arm says it read, None where it does not tell."""
    if stream.prompt_token_ids is not None:
        return len(stream.prompt_token_ids)
    return None if stream.usage is None else stream.usage.prompt_tokens


def too_short(case: Case, *streams: Stream) -> Comparison | None:
    """BROKEN where an answer is to a shorter prompt than the case asks for, or nobody can tell; None otherwise."""
    for stream in streams:
        read = read_tokens(stream)
        if case.min_prompt_tokens and (read is None or read < case.min_prompt_tokens):
            what = (
                f"{stream.arm} read {'an untold number of' if read is None else read} prompt tokens, the case is "
                f"about {case.min_prompt_tokens} and more: nothing is known about a context of that length"
            )
            details = {"prompt_tokens": read, "min_prompt_tokens": case.min_prompt_tokens}
            return Comparison(Verdict.BROKEN, what, details)
    return None
