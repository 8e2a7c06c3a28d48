"""Engines that count: after token t comes t + 1, as anybody can check; the faulty ones miscount where they are told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np

from paritygate.arms.base import Arm, ArmError, Capabilities
from paritygate.case import Case
from paritygate.stream import Position, Stream, TopToken, Usage
from paritygate.triage.budget import Allowance

VOCABULARY = 40
Tokens = tuple[int, ...]
Fault = Callable[[Tokens], bool]


def never(tokens: Tokens) -> bool:
    return False


class CountingArm:
    """`fault(tokens)` says whether the token after them is miscounted, by one too many; `gap` is every top-2 gap."""

    def __init__(
        self,
        name: str,
        fault: Fault = never,
        *,
        forced: bool = True,
        tapped: bool = True,
        takes_ids: bool = True,
        gap: float = 2.0,
        broken_layer: str = "layers.1.mlp",
    ) -> None:
        self.name, self.fault, self.gap = name, fault, gap
        self.takes_ids, self.broken_layer = takes_ids, broken_layer
        able = dict.fromkeys(Capabilities.__struct_fields__, True)
        self.capabilities = Capabilities(**able | {"teacher_forcing": forced, "layer_taps": tapped})
        self.asked: list[Tokens] = []

    def next_logits(self, tokens: Tokens) -> np.ndarray:
        row = np.zeros(VOCABULARY, np.float32)
        step = 2 if self.fault(tokens) else 1
        row[(tokens[-1] + step) % VOCABULARY] = 2 * self.gap
        row[(tokens[-1] + 3) % VOCABULARY] = self.gap
        return row

    def generate(self, case: Case) -> Stream:
        prompt = case.prompt_token_ids
        if prompt is None or not self.takes_ids:
            raise ArmError(f"arm {self.name} takes no token ids")
        self.asked.append(prompt)
        said: list[int] = []
        positions = []
        while len(said) < case.max_tokens:
            row = self.next_logits(prompt + tuple(said)).astype(np.float64)
            logprobs = row - np.log(np.exp(row).sum())
            top = tuple(TopToken(int(i), f"t{i} ", float(logprobs[i])) for i in np.argsort(-row)[:2])
            positions.append(
                Position(token_id=top[0].token_id, token=top[0].token, logprob=top[0].logprob, top=top)
            )
            said.append(top[0].token_id)
        return Stream(
            case=case.name,
            arm=self.name,
            text="".join(f"t{i} " for i in said),
            prompt_token_ids=prompt,
            token_ids=tuple(said),
            positions=tuple(positions),
            finish_reason="length",
            usage=Usage(
                prompt_tokens=len(prompt),
                completion_tokens=len(said),
                total_tokens=len(prompt) + len(said),
                cached_tokens=0,
            ),
            manifest={"backend": "numpy", "libraries": {"numpy": "2"}},
            counters={"prefill_pieces": [[0, len(prompt)]], "max_rows": 1, "cached_tokens": 0},
        )

    def logits(self, token_ids: Tokens, start: int) -> np.ndarray:
        return np.stack([self.next_logits(token_ids[: at + 1]) for at in range(start, len(token_ids))])

    def taps(self, token_ids: Tokens) -> dict[str, np.ndarray]:
        ids = np.asarray(token_ids, np.float32)[:, None]
        taps = {name: ids.repeat(4, 1) for name in ("embedding", "layers.0.mlp", "layers.1.mlp", "norm")}
        wrong = [self.fault(token_ids[: at + 1]) for at in range(len(token_ids))]
        names = list(taps)
        for name in names[names.index(self.broken_layer) :]:
            taps[name][:, 1] += np.asarray(wrong, np.float32) * 0.5
        return taps | {"head": self.logits(token_ids, 0)}

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        return tuple(self.generate(case) for _ in range(times))

    def open(self) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


class Pool:
    """What triage needs of a pool, over arms that are already there; an arm in use cannot be taken twice."""

    def __init__(self, *arms: Arm, checks: int = 9) -> None:
        self._arms = {arm.name: arm for arm in arms}
        self.allowance = Allowance(checks)
        self.dropped: list[str] = []
        self.held: set[str] = set()

    @contextlib.contextmanager
    def use(self, name: str) -> Iterator[Arm]:
        assert not self.held, (
            f"{name} is asked for while {self.held} is held: two lanes could wait for each other"
        )
        self.held.add(name)
        try:
            yield self._arms[name]
        finally:
            self.held.remove(name)

    def drop(self, name: str) -> None:
        self.dropped.append(name)
