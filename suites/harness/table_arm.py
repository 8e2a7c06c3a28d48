"""An engine that is a table, as a gate meets it: what it says follows from the case."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from paritygate.arms.base import ArmError, Capabilities
from paritygate.case import Case
from paritygate.policy import Policy
from paritygate.stream import Position, Stream, TopToken, Usage
from paritygate.verdict import Check


def said(case: Case, seed: int | None = None, *, rows: int = 1, logprob: float = -0.5) -> Stream:
    """After the prompt's last token the next ones, shifted by the seed where the case draws."""
    prompt = case.prompt_token_ids or ()
    shift = (case.sampler.seed if seed is None else seed) or 0
    ids = tuple(
        prompt[-1] + 1 + i + (shift if case.sampler.temperature else 0) for i in range(case.max_tokens)
    )
    positions = tuple(
        Position(token_id=i, token=f"w{i} ", logprob=logprob, top=(TopToken(i, f"w{i} ", logprob),))
        for i in ids
    )
    return Stream(
        case=case.name,
        arm="one",
        text="".join(f"w{i} " for i in ids),
        prompt_token_ids=prompt,
        token_ids=ids,
        positions=positions,
        finish_reason="length",
        finish_cause="Length",
        usage=Usage(
            prompt_tokens=len(prompt), completion_tokens=len(ids), total_tokens=len(prompt) + len(ids)
        ),
        counters={"max_rows": rows},
    )


class Table:
    """`beside(case)` is what a row says in a batch; `running` and `held` are read one after the other."""

    name = "one"

    def __init__(
        self,
        beside: Callable[[Case], Stream] = lambda case: said(case, rows=4),
        running: tuple[int, ...] = (0,),
        held: tuple[int, ...] = (),
        after: Callable[[Case], Stream] = said,
    ) -> None:
        self.capabilities = Capabilities(**dict.fromkeys(Capabilities.__struct_fields__, True))
        self.beside, self._running, self._held, self.after = beside, list(running), list(held), after
        self.aborted = 0

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        return (said(case),) * times

    def generate(self, case: Case) -> Stream:
        return self.after(case)

    def together(self, cases: tuple[Case, ...]) -> tuple[Stream, ...]:
        return tuple(self.beside(case) for case in cases)

    def abort(self, case: Case) -> None:
        self.aborted += 1

    def running(self) -> int:
        return self._running.pop(0) if len(self._running) > 1 else self._running[0]

    def cache_bytes(self) -> int:
        return self._held.pop(0)

    def reset(self) -> None:
        """Nothing is kept."""


class Pool:
    def __init__(self, arm: object) -> None:
        self.arm = arm

    @contextlib.contextmanager
    def use(self, name: str) -> Iterator[object]:
        if isinstance(self.arm, ArmError):
            raise self.arm
        yield self.arm

    def drop(self, name: str) -> None:
        """Nothing to stop."""


def checks(gate: object, policy: Policy, arm: object) -> dict[str, Check]:
    found = list(gate.run(policy, Path(), lambda line: None, Pool(arm)))  # type: ignore[attr-defined]
    return {check.name: check for check in found}
