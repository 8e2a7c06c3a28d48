"""Checks of what an adapter answers: complete, consistent, repeatable, and no more than it declares."""

from __future__ import annotations

import re

import msgspec

from paritygate.arms.base import ArmError
from paritygate.arms.plausible import implausible, vocabulary_of
from paritygate.case import Case
from paritygate.conformance.subject import PLAIN, Broken, Subject
from paritygate.stream import Stream

CAUSES = {
    "Eos", "StopSequence", "GenerationBound", "StructuredStop", "Length", "ContextExhausted", "RepetitionLoop", None,
}  # fmt: skip
# How control tokens are spelled: <s>, </s>, <|im_start|>, DeepSeek's with wide bars, [INST], [/INST].
CONTROL = re.compile("<[|/\uff5c]?[\\w|\uff5c\u2581-]+>|\\[/?[A-Z_]+\\]")
UNICODE = "Ünïcödé — 水 火 山, Ωμέγα, 🎉🍎🎉🍎🎉"


def declared(subject: Subject) -> str:
    """What it declares is there, and what it denies is not."""
    arm, answer = subject.arm(), subject.answer()
    if (answer.case, answer.arm) != (PLAIN.name, arm.name):
        raise Broken(f"the stream names case {answer.case!r} and arm {answer.arm!r}")
    if not answer.text:
        raise Broken("the answer to a plain prompt is empty")
    usage = answer.usage
    shown = {
        "token_ids": answer.token_ids is not None,
        "logprobs": answer.positions is not None and any(position.top for position in answer.positions),
        "streamed": answer.chunk_ends is not None and answer.arrivals_ns is not None,
        "cached_tokens": usage is not None and usage.cached_tokens is not None,
        "prefill_pieces": "prefill_pieces" in answer.counters,
    }
    for name, there in shown.items():
        if getattr(arm.capabilities, name) and not there:
            raise Broken(f"it declares {name}, and the answer has none")
        if there and not getattr(arm.capabilities, name):
            raise Broken(f"it gives {name}, and declares that it cannot")
    return ", ".join(name for name, there in shown.items() if there) or "text alone"


def consistent(subject: Subject) -> str:
    """Counts, ids and texts of one answer agree with each other."""
    answer = subject.answer()
    ids, usage, positions = answer.token_ids, answer.usage, answer.positions
    if fault := implausible(answer, vocabulary_of(subject.model)):
        raise Broken(fault)
    # An answer that a policy judges may count the token that ended it; an adapter says how many ids it gives.
    if usage is not None and ids is not None and usage.completion_tokens != len(ids):
        raise Broken(f"usage says {usage.completion_tokens} completion_tokens, there are {len(ids)} ids")
    if ids is not None and positions is not None:
        if len(positions) > len(ids) + 1:
            raise Broken(f"{len(positions)} positions for {len(ids)} tokens")
        for index, (position, token) in enumerate(zip(positions, ids, strict=False)):
            if position.token_id != token:
                raise Broken(
                    f"position {index} is of token {position.token_id}, the answer has {token} there"
                )
    _spelling(answer)
    return f"{len(ids)} ids" if ids is not None else "text and usage"


def _spelling(answer: Stream) -> None:
    """The tokens' own texts spell the answer, as far as each is whole.

    A tokenizer may drop spaces of a lone token, and leaves control tokens, which have a spelling, out of a text.
    """
    ids = answer.token_ids
    if ids is None or answer.positions is None or len(answer.positions) < len(ids):
        return
    words = ["".join(position.token.split()) for position in answer.positions[: len(ids)]]
    if any("\ufffd" in word for word in words):
        return
    spelled = "".join(
        f"({re.escape(word)})?" if CONTROL.fullmatch(word) else re.escape(word) for word in words
    )
    text = "".join(answer.text.split())
    if not re.fullmatch(spelled, text):
        raise Broken(f"the tokens spell {''.join(words)[:60]!r}, the text is {text[:60]!r}")


def pieces(subject: Subject) -> str:
    """Pieces of a streamed answer end where characters do, in order, and cover the text; they came in order too."""
    answer = subject.answer()
    ends, arrivals = answer.chunk_ends, answer.arrivals_ns
    if ends is None or arrivals is None:
        return "not streamed"
    if len(ends) != len(arrivals):
        raise Broken(f"{len(ends)} pieces and {len(arrivals)} arrivals")
    if list(ends) != sorted(set(ends)) or (ends and ends[0] <= 0):
        raise Broken(f"the pieces' ends do not grow: {list(ends)[:8]}")
    size = len(answer.text_bytes)
    if (ends[-1] if ends else 0) != size:
        raise Broken(f"the pieces end at byte {ends[-1] if ends else 0}, the text has {size}")
    if list(arrivals) != sorted(arrivals) or (arrivals and arrivals[0] <= 0):
        raise Broken(f"arrivals are not times that grow from the request on: {list(arrivals)[:8]}")
    return f"{len(ends)} pieces"


def ending(subject: Subject) -> str:
    """The finish is one of the known ones, and `length` means that the limit was reached."""
    answer = subject.answer()
    if answer.finish_reason not in ("stop", "length", None):
        raise Broken(f"finish_reason is {answer.finish_reason!r}; it may be stop, length or None")
    if answer.finish_cause not in CAUSES:
        raise Broken(f"finish_cause is {answer.finish_cause!r}, which nobody knows")
    count = len(answer.token_ids) if answer.token_ids is not None else None
    if answer.finish_cause == "Length" and count is not None and count != PLAIN.max_tokens:
        raise Broken(f"it ended for its length after {count} of {PLAIN.max_tokens} tokens")
    if count is not None and count > PLAIN.max_tokens:
        raise Broken(f"{count} tokens where max_tokens is {PLAIN.max_tokens}")
    return f"{answer.finish_reason} ({answer.finish_cause or 'cause not told'})"


def one_token(subject: Subject) -> str:
    """max_tokens 1 is one token, the first of the longer answer."""
    answer = subject.arm().generate(msgspec.structs.replace(PLAIN, max_tokens=1))
    whole = subject.answer()
    if (
        answer.token_ids is not None
        and whole.token_ids is not None
        and answer.token_ids != whole.token_ids[:1]
    ):
        raise Broken(
            f"max_tokens 1 gives ids {list(answer.token_ids)}, the longer answer starts {whole.token_ids[:1]}"
        )
    if answer.usage is not None and answer.usage.completion_tokens > 1:
        raise Broken(f"max_tokens 1 gives {answer.usage.completion_tokens} completion tokens")
    if len(answer.text) >= len(whole.text) > 1 and (whole.token_ids is None or len(whole.token_ids) > 1):
        raise Broken("max_tokens 1 gives as much text as the longer answer")
    return repr(answer.text)


def stop_string(subject: Subject) -> str:
    """An answer is cut before its stop string, wherever tokens end; or stop strings are refused aloud."""
    text = subject.answer().text
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    if not stop.strip() or "\ufffd" in stop:
        stop = text[len(text) // 3 : len(text) // 3 + 3]
    case = Case(name="stop", max_tokens=PLAIN.max_tokens, prompt=PLAIN.prompt, stop=(stop,))
    try:
        answer = subject.arm().generate(case)
    except ArmError as error:
        return f"refused aloud: {error.what}"
    expected = text[: text.find(stop)]
    if answer.text != expected:
        raise Broken(f"with stop {stop!r} it says {answer.text!r}, cut there it would be {expected!r}")
    if answer.finish_reason not in ("stop", None):
        raise Broken(f"a stop string ended it, finish_reason is {answer.finish_reason!r}")
    return f"cut before {stop!r}"


def unicode(subject: Subject) -> str:
    """A prompt outside ASCII is answered in whole characters, and the same twice."""
    case = Case(name="unicode", max_tokens=PLAIN.max_tokens, prompt=UNICODE)
    answer = subject.arm().generate(case)
    try:
        text = answer.text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Broken(f"the text holds half a character: {error}") from None
    for end in answer.chunk_ends or ():
        if end < len(text) and text[end] & 0xC0 == 0x80:
            raise Broken(f"a piece ends at byte {end}, inside a character")
    return repr(answer.text[:30])


def repeatable(subject: Subject) -> str:
    """At temperature 0 the same case gives the same answer, twice in a row and through `repeat`."""
    arm, first = subject.arm(), subject.answer()
    second = arm.generate(PLAIN)
    if (first.text, first.token_ids) != (second.text, second.token_ids):
        raise Broken(f"asked twice, it says {second.text[:40]!r} after {first.text[:40]!r}")
    if not arm.capabilities.forgets:
        return "the same twice"
    streams = arm.repeat(PLAIN, 2)
    if len(streams) != 2:
        raise Broken(f"repeat(case, 2) gives {len(streams)} answers")
    if any(stream.text != first.text for stream in streams):
        raise Broken("repeat says something else than generate")
    return "the same twice, and through repeat"


def forgetting(subject: Subject) -> str:
    """After `reset` nothing is reused; an arm that cannot forget says so aloud."""
    arm = subject.arm()
    subject.answer()
    if not arm.capabilities.forgets:
        try:
            arm.reset()
        except ArmError:
            return "it cannot forget, and says so"
        raise Broken("it declares that it cannot forget, and `reset` says nothing")
    arm.reset()
    cold = arm.generate(PLAIN)
    told = cold.usage.cached_tokens if cold.usage is not None else None
    if told:
        raise Broken(f"after reset it reused {told} tokens")
    (first, *_) = arm.repeat(PLAIN, 2)
    told = first.usage.cached_tokens if first.usage is not None else None
    if told:
        raise Broken(f"the first answer of `repeat` reused {told} tokens")
    return "nothing is reused after reset, nor by the first of repeat"


def impossible(subject: Subject) -> str:
    """A token that no vocabulary has is refused with ArmError, and the arm answers on."""
    case = Case(name="impossible", max_tokens=2, prompt_token_ids=(2**31 - 1,))
    try:
        answer = subject.arm().generate(case)
    except ArmError as error:
        refused = error.what
    else:
        raise Broken(f"token {2**31 - 1} as a prompt is answered: {answer.text[:40]!r}")
    if subject.arm().generate(PLAIN).text != subject.answer().text:
        raise Broken("after a request that it refused, it answers otherwise than before")
    return refused[:100]
