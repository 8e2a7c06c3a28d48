"""What arms that drive a library of Hugging Face's kind share: prompts, alternatives, and where an answer is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from paritygate.arms.base import ArmError
from paritygate.case import Case
from paritygate.logits import log_softmax
from paritygate.stream import Position, TopToken


def refuse_unsaid(arm: str, case: Case, engine: str, supported: Iterable[str], mend: str = "") -> None:
    """Raises ArmError naming the first sampler field that the case sets and the engine cannot be told."""
    known = set(supported) | {"temperature"}
    for field in case.sampler.given():
        if field not in known:
            what = f"arm {arm}, case {case.name}: {engine} has no field for `{field}`"
            raise ArmError(f"{what}: {mend or 'leave it out, or leave this arm out of the claim'}")
    if case.constraint is not None:
        what = f"arm {arm}, case {case.name}: {engine} is not given a constraint"
        raise ArmError(f"{what}: {mend or 'leave this case out'}")
    if case.ignore_eos:
        what = f"arm {arm}, case {case.name}: {engine} is not told to go on past an end of sequence"
        raise ArmError(f"{what}: {mend or 'leave this case out'}")


def prompt_ids(tokenizer: Any, case: Case) -> list[int]:
    """The prompt's token ids, through the chat template where the case is a chat."""
    if case.prompt_token_ids is not None:
        return list(case.prompt_token_ids)
    if case.messages is None:
        return list(tokenizer.encode(case.prompt))
    text = tokenizer.apply_chat_template(
        [{"role": m.role, "content": m.content} for m in case.messages],
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
