"""What an arm is: one way to run an engine, ours or another's, seen only through streams and logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from paritygate.case import Case
from paritygate.stream import Stream

# Characters of what an engine printed that a report keeps.
MOST_SHOWN = 20_000


class ArmError(Exception):
    """An arm that could not be run: not installed, hung, ended early, or printed what is not an answer.

    `printed` is what the engine said, for the person who mends it.
    """

    def __init__(self, what: str, printed: str = "") -> None:
        self.what = what
        self.printed = printed.strip()[-MOST_SHOWN:]
        super().__init__(what)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.printed)

    def __str__(self) -> str:
        return f"{self.what}; it printed: {self.printed[-400:]}" if self.printed else self.what


class RowFailed(ArmError):
    """The engine ran, and this row failed or says what cannot be: a fault of the engine, not of the setup."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an arm can give; a claim that needs more cannot be made with it, and says so."""

    token_ids: bool = False
    logprobs: bool = False
    teacher_forcing: bool = False  # `logits` answers, up to a constant for each position
    raw_logits: bool = False  # `logits` answers with what the head computed, not with its log-softmax
    cached_tokens: bool = False
    prefill_pieces: bool = False
    streamed: bool = False
    resets: bool = False  # forgetting what it remembers costs nothing
    batches: bool = False  # several cases at once
    tells_cache: bool = False  # how many bytes its prompt cache holds
    aborts: bool = False  # an answer can be left early, and the arm tells how many are still under way
    forgets: bool = False  # it can be made to forget, at whatever cost: a restart will do
    seeds: bool = False  # a seed makes a random answer repeatable
    pieces: bool = False  # `logits_in_pieces` answers: a sequence can be cut into forwards at will
    layer_taps: bool = False  # `taps` tells what each block of one forward leaves


class TappedArm(Protocol):
    """An arm with the capability `layer_taps`."""

    def taps(self, token_ids: tuple[int, ...]) -> dict[str, np.ndarray]:
        """One forward, what each block leaves by name, in the network's order: float32 [tokens, width]. ArmError.

        Names are compared between arms: `embedding`, `layers.N.attention_norm`, `layers.N.attention`,
        `layers.N.mlp_norm`, `layers.N.mlp`, `norm`, `head`; an arm gives those that it can. `attention` and `mlp` are
        the residual stream after that block.
        """


class StartsPrograms:
    """An arm that starts programs: a run has them started in the folder of its policy, from wherever it is run."""

    folder: Path | None = None  # None: the caller's


class Arm(Protocol):
    """One way to run an engine. Every method raises ArmError, and returns or raises within the arm's timeout.

    A class behind an entry point is called with the arm's name, its options and MODEL, and says two things more.
    `Options` is the struct of the keys of the arm's table in paritygate.toml; it has a `timeout_s`. `in_process` is
    whether the engine is loaded into the process that the arm is made in: such an arm is hosted in one of its own, and
    its `capabilities` are the class's. Making an arm loads nothing: what it can give is asked when a policy is read.

    An arm may have `settings`, a dict: what its manifests will say of how it computes (`backend`, `device`, `dtype`,
    `threads`), as far as its options decide it. Arms whose settings differ cannot be claimed to be identical.
    """

    name: str
    capabilities: Capabilities

    def open(self) -> None:
        """Load what the first answer needs."""

    def generate(self, case: Case) -> Stream:
        """One answer; what the engine remembers of earlier answers may be reused."""

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        """The same case again and again in one engine that remembers nothing before the first."""

    def reset(self) -> None:
        """Make the engine remember nothing."""

    def together(self, cases: tuple[Case, ...]) -> tuple[Stream, ...]:
        """Every case at once, so that the engine may batch them; where the arm can (`batches`)."""

    def abort(self, case: Case) -> None:
        """Begin an answer and leave after its first piece; where the arm can (`aborts`)."""

    def running(self) -> int:
        """Answers under way or waiting in the engine; where the arm can tell (`aborts`)."""

    def cache_bytes(self) -> int:
        """Bytes that the engine keeps of earlier prompts; where the arm can tell (`tells_cache`)."""

    def logits(self, token_ids: tuple[int, ...], start: int) -> np.ndarray:
        """Teacher-forced logits of the positions from `start`: float32 [len(token_ids) - start, vocabulary].

        An arm without `raw_logits` gives their log-softmax.
        """

    def logits_in_pieces(self, token_ids: tuple[int, ...], start: int, size: int) -> tuple[np.ndarray, int]:
        """What `logits` gives, computed in forwards of `size` tokens, the last of what is left, over one cache, and
        how many forwards ran; where the arm can (`pieces`)."""

    def close(self) -> None:
        """Let go of processes, ports and memory; harmless when called twice or before `open`."""
