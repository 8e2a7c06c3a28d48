"""Nothing that an arm started outlives the process that started it, however that one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paritygate.arms import leash

# Says its process id and would run for a minute.
STUBBORN = """
import os, signal, time
if {deaf}: signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(60)
"""
OWNER = """
import subprocess, sys, time
from paritygate.arms import leash
subprocess.Popen(leash.words([sys.executable, "-c", {program!r}]), stdin=subprocess.PIPE, stdout=open({said!r}, "wb"),
                 start_new_session=True)
time.sleep(60)
"""


def eventually(true: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.parametrize("deaf", [False, True], ids=["willing", "deaf to SIGTERM"])
def test_a_parent_killed_with_9_leaves_nothing(tmp_path: Path, deaf: bool) -> None:
    said = tmp_path / "said"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(program=STUBBORN.format(deaf=deaf), said=str(said))]
    )
    eventually(lambda: said.exists() and said.read_text().endswith("\n"))
    child = int(said.read_text())
    assert alive(child)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    eventually(lambda: not alive(child))


def test_the_exit_status_and_a_missing_program_are_passed_on() -> None:
    def run(*command: str) -> subprocess.CompletedProcess[bytes]:
        process = subprocess.Popen(leash.words(list(command)), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = process.stderr.read()
        return subprocess.CompletedProcess(command, process.wait(), None, said)

    assert run(sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    missing = run("/no/such/program")
    assert missing.returncode == 127
    assert b"cannot be started" in missing.stderr


def test_asked_to_stop_it_stops_the_command() -> None:
    process = subprocess.Popen(
        leash.words([sys.executable, "-c", STUBBORN.format(deaf=False)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.terminate()
    assert process.wait(15) == 128 + signal.SIGTERM
    eventually(lambda: not alive(child))
