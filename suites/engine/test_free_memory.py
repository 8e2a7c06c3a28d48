"""How much a process may still take: of the machine, and of every control group above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenline.ops.memory import free_host_bytes

MEGABYTE = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with 8000 MB available."""
    write(tmp_path / "proc/meminfo", "MemTotal: 16384000 kB\nMemAvailable: 8192000 kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def group(at: Path, limit: str, used: int, files: int, names: tuple[str, str, str]) -> None:
    for name, value in zip(names, (limit, str(used), None), strict=True):
        if value is not None:
            write(at / name, value + "\n")
    write(at / "memory.stat", f"anon 1\n{names[2]} {files}\nother 7\n")


NEW = ("memory.max", "memory.current", "inactive_file")
OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def test_without_a_limit_it_is_what_the_machine_has(root: Path) -> None:
    assert free_host_bytes(root) == 8000 * MEGABYTE
    write(root / "proc/self/cgroup", "0::/user.slice\n")
    group(root / "sys/fs/cgroup/user.slice", "max", 1, 0, NEW)
    assert free_host_bytes(root) == 8000 * MEGABYTE


def test_the_narrowest_group_above_the_process_counts(root: Path) -> None:
    """1000 MB, 700 of them used, of which 200 are files that may be dropped: 500 left; the group above leaves 300."""
    write(root / "proc/self/cgroup", "0::/a/b\n")
    groups = root / "sys/fs/cgroup"
    group(groups / "a/b", str(1000 * MEGABYTE), 700 * MEGABYTE, 200 * MEGABYTE, NEW)
    assert free_host_bytes(root) == 500 * MEGABYTE
    group(groups / "a", str(2000 * MEGABYTE), 1700 * MEGABYTE, 0, NEW)
    assert free_host_bytes(root) == 300 * MEGABYTE


def test_a_containers_own_root_is_read(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/\n")
    group(root / "sys/fs/cgroup", str(900 * MEGABYTE), 100 * MEGABYTE, 0, NEW)
    assert free_host_bytes(root) == 800 * MEGABYTE


def test_groups_of_the_first_version(root: Path) -> None:
    write(root / "proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/job\n")
    group(root / "sys/fs/cgroup/memory/job", str(600 * MEGABYTE), 400 * MEGABYTE, 50 * MEGABYTE, OLD)
    group(root / "sys/fs/cgroup/memory", str((1 << 63) - 4096), MEGABYTE, 0, OLD)
    assert free_host_bytes(root) == 250 * MEGABYTE


def test_what_is_overdrawn_is_nothing(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/a\n")
    group(root / "sys/fs/cgroup/a", str(100 * MEGABYTE), 130 * MEGABYTE, 0, NEW)
    assert free_host_bytes(root) == 0
