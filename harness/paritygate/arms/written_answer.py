"""What arms that drive a library of Hugging Face's kind share: prompts, alternatives, and where an answer is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from paritygate.arms.base import ArmError
from paritygate.case import Case
from paritygate.logits import log_softmax
from paritygate.stream import Position, Stream, TopToken, Usage


def refuse_unsaid(arm: str, case: Case, engine: str, supported: Iterable[str]) -> None:
    """Raises ArmError naming the first sampler field that the case sets and the engine cannot be told."""
    known = set(supported) | {"temperature"}
    for field in case.sampler.given():
        if field not in known:
            what = f"arm {arm}, case {case.name}: {engine} has no field for `{field}`"
            raise ArmError(f"{what}: leave it out, or leave this arm out of the claim")
    refuse_beyond_sampling(arm, case, engine)


def refuse_beyond_sampling(arm: str, case: Case, engine: str) -> None:
    """Raises ArmError where a case asks for what few engines can be told, and this one cannot."""
    for asked, what in (
        (case.constraint is not None, "is not given a constraint"),
        (case.ignore_eos, "is not told to go on past an end of sequence"),
    ):
        if asked:
            raise ArmError(f"arm {arm}, case {case.name}: {engine} {what}: leave this case out")


def refuse_nothing(arm: str, case: Case, prompt: Sequence[int]) -> None:
    """Raises ArmError where nothing is asked: no prompt, or no token."""
    if not prompt or case.max_tokens < 1:
        what = "the prompt is empty" if not prompt else f"max_tokens {case.max_tokens} asks for nothing"
        raise ArmError(f"arm {arm}, case {case.name}: {what}")


def checked_prompt(arm: str, case: Case, tokenizer: Any, vocabulary: int) -> list[int]:
    """The prompt's token ids. Raises ArmError where they are none, or outside the vocabulary."""
    prompt = prompt_ids(tokenizer, case)
    refuse_nothing(arm, case, prompt)
    if max(prompt) >= vocabulary or min(prompt) < 0:
        raise ArmError(f"arm {arm}, case {case.name}: a prompt token is outside the vocabulary")
    return prompt


def asked_of(case: Case) -> dict[str, Any]:
    """What a manifest says of the request."""
    return {"sampling": case.sampler.given(), "max_tokens": case.max_tokens, "stop": list(case.stop)}


def written_stream(
    arm: str,
    case: Case,
    *,
    prompt: Sequence[int],
    token_ids: Sequence[int],
    positions: Sequence[Position] | None,
    text: str,
    chunks: Sequence[str],
    arrivals: Sequence[int],
    cause: str,
    manifest: dict[str, Any],
) -> Stream:
    """The stream of an answer that came in pieces of text and was put together here."""
    ends = chunk_ends_of(chunks, text)
    return Stream(
        case=case.name,
        arm=arm,
        text=text,
        prompt_token_ids=tuple(prompt),
        token_ids=tuple(token_ids),
        positions=None if positions is None else tuple(positions),
        chunk_ends=ends,
        arrivals_ns=tuple(arrivals[: len(ends)]),
        finish_reason="length" if cause == "Length" else "stop",
        finish_cause=cause,
        usage=Usage(
            prompt_tokens=len(prompt),
            completion_tokens=len(token_ids),
            total_tokens=len(prompt) + len(token_ids),
        ),
        manifest=manifest | asked_of(case),
    )


def prompt_ids(tokenizer: Any, case: Case) -> list[int]:
    """The prompt's token ids, through the chat template where the case is a chat."""
    if case.prompt_token_ids is not None:
        return list(case.prompt_token_ids)
    if case.messages is None:
        return list(tokenizer.encode(case.prompt))
    text = tokenizer.apply_chat_template(
        msgspec.to_builtins(case.messages),
        tokenize=False,
        add_generation_prompt=True,
    )
    return list(tokenizer.encode(text, add_special_tokens=False))


def position_of(logits: np.ndarray, token_id: int, count: int, spell: Callable[[int], str]) -> Position:
    """A token that was drawn from a row of logits, with its `count` likeliest alternatives; the gap is in logits."""
    logprobs = log_softmax(logits)
    top = [int(i) for i in np.argsort(-logits, kind="stable")[: max(count, 2)]]
    return Position(
        token_id=token_id,
        token=spell(token_id),
        logprob=float(logprobs[token_id]),
        top=tuple(TopToken(i, spell(i), float(logprobs[i])) for i in top[:count]),
        margin=float(logits[top[0]]) - float(logits[top[1]]),
    )


def cut_at_stop(text: str, stops: tuple[str, ...]) -> str | None:
    """The text before the first stop string in it; None where no stop string occurs."""
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(found)] if found else None


def chunk_ends_of(chunks: Sequence[str], text: str) -> tuple[int, ...]:
    """Where each piece ends, in bytes of the UTF-8 text, which may have been cut after the pieces came."""
    ends, size = [], len(text.encode("utf-8"))
    at = 0
    for chunk in chunks:
        at += len(chunk.encode("utf-8"))
        ends.append(min(at, size))
        if at >= size:
            break
    return tuple(ends)
