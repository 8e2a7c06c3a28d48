"""One session: rounds of fresh processes until every figure is decided, or the rounds or the time are used up."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paritygate.bench.decide import Decision, decide
from paritygate.bench.observation import FIGURES, Observation, figure
from paritygate.bench.pairs import BenchError, Side, observe_side, order
from paritygate.bench.settings import BenchPolicy
from paritygate.verdict import Verdict

Observe = Callable[[Side], Observation]


@dataclass
class Session:
    """What a session measured: pairs of (base, head), and why samples were left out."""

    pairs: list[tuple[Observation, Observation]] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    rounds: int = 0
    seconds: float = 0.0

    def verdict(self, name: str) -> Verdict:
        """What the session says about a figure."""
        return self.decisions[name].verdict

    def median(self, name: str, *, head: bool) -> float:
        """The median of a figure on one side."""
        return statistics.median(figure(pair[1 if head else 0], name) for pair in self.pairs)


def first_difference(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int | None:
    """The first index at which two token sequences differ, None when they are the same."""
    for index, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return index
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


class _Referee:
    """Voids a sample that did other work: its tokens are not the golden's, or not those of its own side before it.

    The base is held to its own tokens alone: a change that mends a wrong token must stay measurable.
    """

    def __init__(self, expected: tuple[int, ...]) -> None:
        self._expected: dict[bool, tuple[int, ...]] = {True: expected} if expected else {}

    def objection(self, observation: Observation, head: bool) -> str | None:
        known = self._expected.setdefault(head, observation.token_ids)
        index = first_difference(observation.token_ids, known)
        if index is None:
            return None
        side = "head" if head else "base"
        return f"{side}: token {index} is not the one expected there, so the sample timed other work"


def run_session(
    base: Side,
    head: Side,
    policy: BenchPolicy,
    progress: Callable[[str], None],
    *,
    observe: Observe = observe_side,
    clock: Callable[[], float] = time.monotonic,
    figures: tuple[str, ...] = tuple(FIGURES),
) -> Session:
    """Measure until decided. Raises BenchError when a process fails, or when most samples are void."""
    session = Session()
    referee = _Referee(head.workload.expected)
    looks = policy.max_rounds - policy.min_rounds + 1
    started = clock()
    for number in range(policy.max_rounds):
        spent = clock() - started
        if number >= policy.min_rounds and spent + spent / number > policy.session_seconds:
            break
        taken = [(is_head, observe(head if is_head else base)) for is_head in order(number)]
        for first, second in (taken[:2], taken[2:]):
            _add_pair(session, referee, dict((first, second)))
        session.rounds = number + 1
        session.seconds = clock() - started
        progress(_line(session, policy))
        if session.rounds < policy.min_rounds:
            continue
        if len(session.void) > len(session.pairs):
            raise BenchError(f"{len(session.void)} samples are void, {len(session.pairs)} pairs are left: "
                             f"{session.void[0]}")  # fmt: skip
        for name in figures:
            logs = [math.log(figure(pair[1], name) / figure(pair[0], name)) for pair in session.pairs]
            known = session.decisions.get(name)
            # A figure that was decided stays decided: every further look at it would have to be paid for.
            if known is None or known.verdict is Verdict.INCONCLUSIVE:
                session.decisions[name] = decide(
                    logs, margin=policy.margin_of(name), alpha=policy.alpha, looks=looks, figures=len(figures)
                )
        if all(session.verdict(name) is not Verdict.INCONCLUSIVE for name in figures):
            break
    return session


def _add_pair(session: Session, referee: _Referee, pair: dict[bool, Observation]) -> None:
    objections = [
        objection
        for is_head, observation in pair.items()
        if (objection := referee.objection(observation, is_head)) is not None
    ]
    session.void += objections
    if not objections:
        session.pairs.append((pair[False], pair[True]))


def _line(session: Session, policy: BenchPolicy) -> str:
    if not session.pairs:
        return f"round {session.rounds} of at most {policy.max_rounds}: every sample void"
    before, after = session.median("decode", head=False) / 1e6, session.median("decode", head=True) / 1e6
    return (
        f"round {session.rounds} of at most {policy.max_rounds}, {session.seconds:.0f} s: "
        f"decode {before:.2f} ms per token at the base, {after:.2f} here"
    )
