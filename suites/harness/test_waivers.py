"""A waiver lets one failure pass until a day; one that is late, or not needed, is a failure itself."""

from __future__ import annotations

import datetime

from paritygate.gates.waivers import apply
from paritygate.policy import Waiver
from paritygate.verdict import Check, Outcome, Verdict

TODAY = datetime.date(2026, 1, 10)
RED = Check("golden", "golden/a", Outcome.FAIL, Verdict.DIVERGED, "differs")
GREEN = Check("golden", "golden/b", Outcome.PASS, Verdict.IDENTICAL, "same")


def waiver(check: str, day: int = 20) -> Waiver:
    return Waiver(check=check, reason="known", issue="17", expires=datetime.date(2026, 1, day))


def outcomes(*waivers: Waiver) -> dict[str, Outcome]:
    return {check.name: check.outcome for check in apply([RED, GREEN], waivers, TODAY)}


def test_a_waived_failure_passes_and_says_so() -> None:
    red, green = apply([RED, GREEN], (waiver("golden/a"),), TODAY)
    assert (red.outcome, red.verdict, green) == (Outcome.PASS, Verdict.DIVERGED, GREEN)
    assert red.headline == "waived until 2026-01-20 (17: known): differs"


def test_a_check_that_passes_does_not_hide_one_of_its_name() -> None:
    green = Check("golden", "golden/a", Outcome.PASS, Verdict.IDENTICAL, "same")
    assert apply([RED, green], (), TODAY) == [RED, green]
    waived, kept = apply([RED, green], (waiver("golden/a"),), TODAY)
    assert (waived.outcome, waived.details, kept) == (Outcome.PASS, {"waived": True}, green)


def test_a_late_unneeded_or_misnamed_waiver_fails() -> None:
    assert outcomes(waiver("golden/a", day=9)) == {
        "golden/a": Outcome.FAIL, "golden/b": Outcome.PASS, "waivers/golden/a": Outcome.FAIL,
    }  # fmt: skip
    assert outcomes(waiver("golden/b"))["waivers/golden/b"] is Outcome.FAIL
    assert outcomes(waiver("golden/c"))["waivers/golden/c"] is Outcome.FAIL
