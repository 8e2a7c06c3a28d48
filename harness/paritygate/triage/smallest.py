"""The smallest prompt that still diverges: delta debugging over its tokens (Zeller and Hildebrandt, 2002)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from paritygate.arms.base import Arm, ArmError
from paritygate.case import Case
from paritygate.compare.identity import first_difference
from paritygate.stream import Stream
from paritygate.triage.budget import Budget, Spent
from paritygate.triage.divergence import Divergence, Use

Tokens = tuple[int, ...]


def minimized(diverges: Callable[[Tokens], bool], tokens: Tokens) -> tuple[Tokens, str]:
    """A part of `tokens`, in order, of which no single chunk can be left out, and "" or why the search was cut short.

    `diverges(tokens)` is taken to be True; it may raise Spent, and what was found until then is returned.
    """
    chunks = 2
    tried: set[Tokens] = set()
    try:
        while len(tokens) >= 2:
            size = -(-len(tokens) // chunks)
            parts = [tokens[at : at + size] for at in range(0, len(tokens), size)]
            rests = [tokens[:at] + tokens[at + size :] for at in range(0, len(tokens), size)]
            for candidate in (*parts, *rests) if chunks > 2 else parts:
                if candidate in tried or len(candidate) == len(tokens):
                    continue
                tried.add(candidate)
                if diverges(candidate):
                    chunks = 2 if len(candidate) <= size else max(chunks - 1, 2)
                    tokens = candidate
                    break
            else:
                if chunks >= len(tokens):
                    break
                chunks = min(2 * chunks, len(tokens))
    except Spent as why:
        return tokens, str(why)
    return tokens, ""


@dataclass(frozen=True)
class _Question:
    """Tokens in, and whether the two sides of a divergence still differ; `max_tokens` bounds both answers."""

    found: Divergence
    use: Use
    budget: Budget
    max_tokens: int

    def _asked(self, tokens: Tokens) -> Case:
        case = self.found.case.with_token_ids(tokens)
        return msgspec.structs.replace(case, max_tokens=self.max_tokens)

    def _fresh(self, arm: Arm, case: Case) -> Stream:
        self.budget.call()
        if arm.capabilities.resets:
            arm.reset()
        return arm.generate(case)

    def _both(self, tokens: Tokens) -> tuple[Stream, Stream]:
        asked, found = self._asked(tokens), self.found
        if found.cached:
            with self.use(found.arm) as arm:
                self.budget.call()
                cold = arm.repeat(asked, 1)[0]
                arm.reset()
                arm.generate(found.before or asked)
                return cold, arm.generate(asked)
        if found.other is None:
            raise ValueError("there is no other arm to ask")
        with self.use(found.other) as arm:
            reference = self._fresh(arm, asked)
        with self.use(found.arm) as arm:
            return reference, self._fresh(arm, asked)

    def __call__(self, tokens: Tokens) -> bool:
        return differ(*self._both(tokens), self.found.floor)


def differ(reference: Stream, candidate: Stream, floor: float) -> bool:
    """Whether two answers differ otherwise than by a near-tie."""
    ours, theirs = reference.token_ids, candidate.token_ids
    if ours is None or theirs is None:
        return reference.text_bytes != candidate.text_bytes
    if ours == theirs:
        return reference.text_bytes != candidate.text_bytes
    index = first_difference(ours, theirs)
    sides = [] if index is None else [side.position(index) for side in (reference, candidate)]
    gaps = [side.gap for side in sides if side is not None and side.gap is not None]
    return not gaps or max(gaps) >= floor


def _not_found(sentence: str) -> dict[str, Any]:
    return {"token_ids": None, "sentence": f"smallest prompt: {sentence}"}


def smallest_prompt(found: Divergence, use: Use, budget: Budget, names: dict[int, str]) -> dict[str, Any]:
    """The evidence: the tokens, how many answers it took, and a sentence; or, where it was not found, why."""
    if not found.cached and found.other is None:
        return _not_found(
            "not searched, no second arm can be asked and the golden knows its own prompt alone"
        )
    if not found.prompt:
        return _not_found("not searched, no side tells the tokens of its prompt")
    ways: list[tuple[Tokens, int]] = []
    if found.index is not None and not found.cached:
        ways.append((found.prompt + found.said[: found.index], 1))
    long = found.case.max_tokens if found.index is None else found.index + 1
    if (found.prompt, long) not in ways:
        ways.append((found.prompt, long))
    started = budget.called
    for tokens, max_tokens in ways:
        question = _Question(found, use, budget, max_tokens)
        try:
            if not question(tokens):
                continue
        except Spent as why:
            return _not_found(f"not searched, {why}")
        except ArmError as error:
            return _not_found(f"not searched, an arm does not take this prompt as tokens ({error.what})")
        try:
            smallest, cut_short = minimized(question, tokens)
        except ArmError as error:
            return _not_found(f"the search ended early: {error.what}")
        text = "".join(names.get(token, f"<{token}>") for token in smallest)
        calls = budget.called - started
        sentence = (
            f"smallest prompt: {len(smallest)} of {len(tokens)} tokens still diverge within {max_tokens} token(s), "
            f"{list(smallest)}, after {calls} answers"
        )
        return {
            "token_ids": list(smallest),
            "of": len(tokens),
            "max_tokens": max_tokens,
            "text": text,
            "calls": calls,
            "cut_short": cut_short,
            "sentence": f"{sentence}; cut short: {cut_short}" if cut_short else sentence,
        }
    return _not_found(
        "given as tokens, the prompt does not diverge: neither at the fork alone nor from its start"
    )
