"""A small engine behind an arm that keeps the protocol, and defects that can be planted in it one at a time.

The engine: token i is character i of an alphabet, and row i of a fixed matrix says what follows it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any, ClassVar

import msgspec
import numpy as np

from paritygate.arms.base import ArmError, Capabilities
from paritygate.arms.written_answer import chunk_ends_of, cut_at_stop, position_of
from paritygate.case import Case
from paritygate.stream import Stream, Usage

ALPHABET = "abcdefghijklmnopqrstuvwxyzäöüß"
MATRIX = np.random.default_rng(3).normal(size=(len(ALPHABET), len(ALPHABET))).astype(np.float32)
# Seven letters on, with a clear lead: every answer of a dozen tokens meets the letters outside ASCII.
MATRIX[np.arange(len(ALPHABET)), (np.arange(len(ALPHABET)) + 7) % len(ALPHABET)] += 10


class ToyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout_s: float = 5.0
    flaw: str = ""


class LaxOptions(msgspec.Struct, frozen=True, kw_only=True):
    timeout_s: float = 5.0
    flaw: str = ""


class ToyArm:
    Options: ClassVar[type[msgspec.Struct]] = ToyOptions
    in_process: ClassVar[bool] = False
    flaw: ClassVar[str] = ""

    def __init__(self, name: str, options: Any, model: str) -> None:
        self.name = name
        self.options = options
        self.capabilities = Capabilities(
            token_ids=True,
            logprobs=True,
            teacher_forcing=True,
            raw_logits=self.flaw != "normalised-undeclared",
            cached_tokens=True,
            streamed=self.flaw != "streamed-undeclared",
            resets=True,
            forgets=True,
            seeds=True,
        )
        self.opened = False
        self.warm = False
        self.asked = 0
        self.children: list[subprocess.Popen[bytes]] = []

    def open(self) -> None:
        if self.flaw == "opens-once" and self.opened:
            raise RuntimeError("the port is taken")
        if self.flaw == "leaves-process":
            self.children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"]))
        self.opened = True

    def close(self) -> None:
        if self.flaw == "close-needs-open" and not self.opened:
            raise AttributeError("no process to stop")
        self.opened = False

    def _prompt(self, case: Case) -> list[int]:
        if case.prompt_token_ids is None:
            return [ALPHABET.index(c) for c in (case.prompt or "").lower() if c in ALPHABET]
        ids = list(case.prompt_token_ids)
        if max(ids) >= len(ALPHABET):
            if self.flaw == "impossible-answered":
                return [0]
            if self.flaw == "impossible-crashes":
                raise IndexError("token out of range")
            raise ArmError(f"arm {self.name}, case {case.name}: a prompt token is outside the vocabulary")
        return ids

    def _rows(self, ids: list[int]) -> np.ndarray:
        return MATRIX[ids]

    def generate(self, case: Case) -> Stream:
        if self.flaw != "limit-ignored" and self.options.timeout_s < 0.1:
            raise ArmError(f"arm {self.name} hung: no answer within {self.options.timeout_s} s")
        if self.flaw == "limit-ignored":
            time.sleep(1.1 if self.options.timeout_s < 0.1 else 0)
        self.asked += 1
        prompt = self._prompt(case)
        limit = case.max_tokens + (self.flaw == "one-too-many")
        ids: list[int] = []
        last, text, cause = prompt[-1], "", "Length"
        if self.flaw == "unsteady":
            last = self.asked % len(ALPHABET)
        while len(ids) < limit:
            last = int(MATRIX[last].argmax())
            ids.append(last)
            text = "".join(ALPHABET[i] for i in ids)
            cut = cut_at_stop(text, () if self.flaw == "stop-unused" else case.stop)
            if cut is not None:
                text, cause = cut, "StopSequence"
                break
        chunks = [ALPHABET[i] for i in ids]
        ends = list(chunk_ends_of(chunks, text))
        if self.flaw == "tail-not-flushed":
            ends = ends[:-1]
        if self.flaw == "half-characters":
            ends = list(range(1, len(text.encode()) + 1))
        cached = len(prompt) - 1 if self.warm and self.flaw != "cached-untold" else 0
        if self.flaw == "never-forgets":
            cached = 1
        self.warm = True
        positions = [
            position_of(MATRIX[before], token, case.logprobs or 2, ALPHABET.__getitem__)
            for before, token in zip([prompt[-1], *ids], ids, strict=False)
        ]
        if self.flaw == "positions-shifted":
            positions = positions[1:] + positions[:1]
        if self.flaw == "other-text":
            text = text[:-1] + "?"
        if self.flaw == "half-surrogate":
            text = text[:-1] + "\ud83c" if case.name == "unicode" else text
        arrivals = [(i + 1) * 1000 for i in range(len(ends))]
        return Stream(
            case=case.name,
            arm=self.name,
            text="" if self.flaw == "empty" else text,
            prompt_token_ids=tuple(prompt),
            token_ids=None if self.flaw == "ids-missing" else tuple(ids),
            positions=tuple(positions),
            chunk_ends=tuple(ends),
            arrivals_ns=tuple(arrivals[::-1] if self.flaw == "arrivals-backwards" else arrivals),
            finish_reason="eos"
            if self.flaw == "reason-unknown"
            else "length"
            if cause == "Length"
            else "stop",
            finish_cause=cause,
            usage=Usage(
                prompt_tokens=len(prompt),
                completion_tokens=len(ids) + (self.flaw == "usage-counts-end"),
                total_tokens=len(prompt) + len(ids) + (self.flaw == "usage-counts-end"),
                cached_tokens=None if self.flaw == "cached-untold" else cached,
            ),
        )

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        self.reset()
        return tuple(self.generate(case) for _ in range(1 if self.flaw == "repeat-once" else times))

    def reset(self) -> None:
        self.warm = False

    def logits(self, token_ids: tuple[int, ...], start: int) -> np.ndarray:
        rows = self._rows(list(token_ids))[start:]
        match self.flaw:
            case "logits-float64":
                return rows.astype(np.float64)
            case "logits-whole-prompt":
                return self._rows(list(token_ids))
            case "logits-other-model":
                return rows[:, ::-1].copy()
            case "logits-nan":
                return np.where(rows > 1, np.float32(np.nan), rows)
            case "logits-normalised":
                return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
        return rows


def flawed(flaw: str) -> type[ToyArm]:
    """The arm with one defect."""
    options = LaxOptions if flaw == "options-lax" else ToyOptions
    return type("Flawed", (ToyArm,), {"flaw": flaw, "Options": options})
