"""Which faults a run of the gates tries: others on every commit, all of them in turn."""

from __future__ import annotations

import datetime
from pathlib import Path

from paritygate.faults.catalogue import Fault
from paritygate.revision import told


def turn(root: Path) -> int:
    """A number that grows by one with every commit; outside git, with every day."""
    commits = told(root, "rev-list", "--count", "HEAD")
    return int(commits) if commits else datetime.date.today().toordinal()


def sample(faults: tuple[Fault, ...], count: int, turn: int) -> tuple[Fault, ...]:
    """`count` of the faults that can be planted; as `turn` grows each comes round again, none is left out."""
    able = [fault for fault in faults if not fault.not_applicable]
    count = min(count, len(able))
    start = turn * count % len(able) if able else 0
    return tuple((able + able)[start : start + count])
