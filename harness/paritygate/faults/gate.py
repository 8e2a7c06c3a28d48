"""The faults gate: the gates still catch a sample of what they are there for, and let the clean engine pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.faults.matrix import fault_of, trial_json, trials
from paritygate.faults.sample import sample, turn
from paritygate.faults.trial import Trial
from paritygate.policy.catalogue import load_catalogue
from paritygate.verdict import Check, Outcome, Verdict

if TYPE_CHECKING:
    from paritygate.policy import Policy

GATE = "faults"


def check_of(trial: Trial) -> Check:
    """A trial as a check: held where the gates said what they must."""
    fault, wrong = trial.fault, fault_of(trial)
    name = f"{GATE}/{fault.id if fault else 'clean'}"
    details = {"trial": trial_json(trial)}
    if wrong:
        dead = trial.state == "dead"
        outcome = Outcome.COULD_NOT_RUN if dead else Outcome.FAIL
        return Check(GATE, name, outcome, Verdict.SETUP_ERROR if dead else Verdict.BROKEN, wrong, details,
                     trial.seconds)  # fmt: skip
    if fault is None:
        headline = f"nothing planted: {trial.checks} checks, none red"
    elif trial.state == "survived":
        headline = f"not caught, and known why: {trial.note}"
    else:
        told = trial.named_by or (trial.reds[0] if trial.reds else None)
        seen = (
            f"by {', '.join(trial.gates)} after {trial.first_red:.0f} s"
            if trial.first_red
            else "as it must be"
        )
        headline = f"{fault.defect}: {fault.expect} {seen}" + (f": {told.headline}" if told else "")
    return Check(GATE, name, Outcome.PASS, Verdict.HELD, headline, details, trial.seconds)


def run(policy: Policy, root: Path, progress: Callable[[str], None]) -> Iterator[Check]:
    """The clean tree, then this commit's sample. A gate that is red without a fault proves nothing with one."""
    every = load_catalogue(root, policy.faults.catalogue)
    chosen = sample(every, policy.faults.sample, turn(root))
    caught = expected = 0
    for trial in trials(root, policy, (None, *chosen), progress):
        yield check_of(trial)
        if trial.fault is None and trial.state != "caught":
            return
        if trial.fault is not None and not trial.fault.survives:
            expected += 1
            caught += trial.state == "caught"
    yield _floor(caught, expected, policy.faults.floor, len(every))


def _floor(caught: int, expected: int, floor: float, every: int) -> Check:
    share = caught / expected if expected else 0.0
    held = expected > 0 and share >= floor
    what = f"{caught} of {expected} planted faults were caught (the floor is {floor:.0%}); {every} are in the catalogue"
    return Check(
        GATE,
        f"{GATE}/floor",
        Outcome.PASS if held else Outcome.FAIL,
        Verdict.HELD if held else Verdict.BROKEN if expected else Verdict.NOT_RUN,
        what if expected else "every sampled fault is an explained survivor: nothing was proved",
        {"caught": caught, "tried": expected, "floor": floor},
    )
