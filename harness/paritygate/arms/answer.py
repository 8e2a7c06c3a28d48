"""tokenline's result object, as it comes in process, from `--json` and over HTTP, turned into a Stream."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from paritygate.arms.base import ArmError, RowFailed
from paritygate.arms.written_answer import chunk_ends_of
from paritygate.stream import Position, Stream, TopToken, Usage


def _logprob(told: Any) -> Any:
    """JSON has no minus infinity: the logprob of a token that cannot be drawn comes as null."""
    return -math.inf if told is None else told


def positions_of(entries: list[dict[str, Any]] | None) -> tuple[Position, ...] | None:
    """Logprob entries of a result: {token_id, token, logprob, top_logprobs: [...]}, one a token."""
    if entries is None:
        return None
    return tuple(
        Position(
            token_id=entry["token_id"],
            token=entry["token"],
            logprob=entry["logprob"],
            top=tuple(
                TopToken(top["token_id"], top["token"], _logprob(top["logprob"]))
                for top in entry["top_logprobs"]
            ),
        )
        for entry in entries
    )


def stream_of(
    result: dict[str, Any],
    *,
    case: str,
    arm: str,
    chunks: list[str] | None = None,
    arrivals_ns: list[int] | None = None,
) -> Stream:
    """The stream of one result. Raises ArmError where the row failed or the object is not a result."""
    if not isinstance(result, dict):
        raise ArmError(f"arm {arm}, case {case}: the answer is not a result object", str(result))
    if result.get("finish_reason") in ("error", "cancelled"):
        raise RowFailed(
            f"arm {arm}, case {case}: the row ended with {result['finish_reason']}", str(result.get("error"))
        )
    try:
        made = Stream(
            case=case,
            arm=arm,
            text=result["text"],
            prompt_token_ids=tuple(result["prompt_token_ids"]),
            token_ids=tuple(result["token_ids"]),
            positions=positions_of(result["logprobs"]),
            chunk_ends=None if chunks is None else chunk_ends_of(chunks, result["text"]),
            arrivals_ns=None if arrivals_ns is None else tuple(arrivals_ns),
            finish_reason=result["finish_reason"],
            finish_cause=result["finish_cause"],
            usage=msgspec.convert(result["usage"], Usage),
            manifest=result["manifest"],
            counters=result["counters"],
            timings=result["timings"],
        )
        # A value of another type, or text that is none, is found here and not by a gate.
        msgspec.convert(msgspec.to_builtins(made), Stream)
        made.text.encode("utf-8")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArmError(
            f"arm {arm}, case {case}: the result lacks or misspells {error}", str(result)
        ) from error
    if made.text and not made.token_ids:
        raise ArmError(f"arm {arm}, case {case}: the result has text and no token ids", str(result))
    return made
