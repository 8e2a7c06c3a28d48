"""Waivers: a failure that is known, for a reason, until a day; and never longer than it is needed."""

from __future__ import annotations

import dataclasses
import datetime

from paritygate.policy import Waiver
from paritygate.verdict import Check, Outcome, Verdict

GATE = "waivers"


def apply(checks: list[Check], waivers: tuple[Waiver, ...], today: datetime.date) -> list[Check]:
    """The checks with waived failures let pass, and a failure for every waiver that is expired or not needed."""
    judged = list(checks)
    faults = []
    for waiver in waivers:
        named = [index for index, check in enumerate(judged) if check.name == waiver.check]
        failing = [index for index in named if judged[index].outcome is not Outcome.PASS]
        name = f"waivers/{waiver.check}"
        if today > waiver.expires:
            what = (
                f"the waiver expired on {waiver.expires} ({waiver.issue}): mend what it waived, or renew it"
            )
            faults.append(Check(GATE, name, Outcome.FAIL, Verdict.BROKEN, what))
        elif not named:
            what = "the waiver names a check that did not run"
            faults.append(Check(GATE, name, Outcome.FAIL, Verdict.NOT_RUN, what))
        elif not failing:
            what = f"the check passes, so the waiver is no longer needed ({waiver.issue}): remove it"
            faults.append(Check(GATE, name, Outcome.FAIL, Verdict.BROKEN, what))
        for index in failing if today <= waiver.expires else ():
            check = judged[index]
            judged[index] = dataclasses.replace(
                check,
                outcome=Outcome.PASS,
                headline=f"waived until {waiver.expires} ({waiver.issue}: {waiver.reason}): {check.headline}",
                details=check.details | {"waived": True},
            )
    return [*judged, *faults]
