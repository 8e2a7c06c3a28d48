"""How much a run may spend on explaining what it found."""

from __future__ import annotations

from paritygate.policy.table import Table
from paritygate.quantities import Natural, Seconds


class TriagePolicy(Table, frozen=True, kw_only=True):
    """`checks` divergences of a run are looked into with the arms, each for at most about `seconds`.

    The others get what costs nothing: settings, partitions and the command that shows them again. One call of an arm
    that is under way when the time is up is waited for, as long as the arm's own timeout says.
    """

    checks: Natural = 4
    seconds: Seconds = 40.0
    arm_calls: Natural = 60
