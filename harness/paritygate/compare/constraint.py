"""Whether an answer is what its case's constraint holds it to."""

from __future__ import annotations

import json
import re

from paritygate.case import Case
from paritygate.compare.comparison import Comparison
from paritygate.stream import Stream
from paritygate.verdict import Verdict

KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def _fault(case: Case, text: str) -> str:
    constraint = case.constraint
    if constraint is None or constraint.grammar is not None:
        return ""
    if constraint.choice:
        return "" if text in constraint.choice else "is none of the choices"
    if constraint.regex is not None:
        return "" if re.fullmatch(constraint.regex, text) else f"does not match {constraint.regex}"
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"is not valid JSON ({error})"
    wanted = "object" if constraint.json_object else (constraint.json_schema or {}).get("type")
    kind = KINDS.get(wanted) if isinstance(wanted, str) else None
    return f"is no JSON {wanted}" if kind is not None and not isinstance(value, kind) else ""


def unmet(case: Case, *streams: Stream) -> Comparison | None:
    """BROKEN where an answer that ended by itself breaks its constraint; None otherwise.

    One that was cut off (`finish_reason` "length") is the beginning of what it would have been, and is not judged.
    Of a schema only validity as JSON and the outermost type are: what a schema means is the engine's tests' affair.
    """
    for stream in streams:
        if case.constraint is None or stream.finish_reason != "stop":
            continue
        if fault := _fault(case, stream.text):
            what = f"the answer of {stream.arm} {fault}: its grammar did not hold it"
            return Comparison(
                Verdict.BROKEN, what, {"text": stream.text, "constraint": case.constraint.given()}
            )
    return None
