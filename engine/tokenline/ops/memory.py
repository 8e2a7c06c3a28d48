"""How much memory a process may still take on its host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_NO_LIMIT = 1 << 60  # a cgroup of version 1 without a limit tells a number near 2^63


def free_host_bytes(root: Path = Path("/")) -> int:
    """What the machine has available and the process's control groups still allow, whichever is less.

    Where the system does not tell (not Linux), half of its memory.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    told = dict(line.split(":", 1) for line in lines)
    available = int(told["MemAvailable"].split()[0]) * 1024
    return max(0, min(available, *_left_by_groups(root)))


def _left_by_groups(root: Path) -> Iterator[int]:
    """What each control group that the process is in, and each above it, still allows."""
    yield _NO_LIMIT
    groups = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names = ("memory.max", "memory.current", "inactive_file")
            base = groups
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            base = groups / "memory"
        else:
            continue
        own = base / path.lstrip("/")
        for group in (own, *own.parents):
            limit, used = (_read(group / name).strip() for name in names[:2])
            if limit.isdigit() and used.isdigit():
                yield int(limit) - int(used) + _reclaimable(group, names[2])
            if group == base:
                break


def _reclaimable(group: Path, name: str) -> int:
    """Files that the group has read and the kernel may drop: they count as used."""
    told = (line.split() for line in _read(group / "memory.stat").splitlines())
    return next((int(value) for key, value in told if key == name), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
