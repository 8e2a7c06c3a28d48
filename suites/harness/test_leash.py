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
from paritygate.arms.base import ArmError
from paritygate.arms.command import run_to_end
from paritygate.arms.server_process import ServerProcess

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
from paritygate.arms.base import ArmError
from paritygate.arms.command import run_to_end
from paritygate.arms.server_process import ServerProcess
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


# Forks twice and leaves its session, as a daemon does; the grandchild writes its process id and would run for a minute.
DAEMON = """
import os, pathlib, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        path = pathlib.Path({said!r})
        path.with_suffix(".new").write_text(str(os.getpid()))
        path.with_suffix(".new").rename(path)
        time.sleep(60)
    os._exit(0)
while not os.path.exists({said!r}):
    time.sleep(0.01)
{then}
"""


def test_a_daemon_that_a_program_left_behind_is_gone_when_the_answer_is_there(tmp_path: Path) -> None:
    said = tmp_path / "said"
    words = [sys.executable, "-c", DAEMON.format(said=str(said), then="print('hello')")]
    assert run_to_end(words, timeout_s=30.0)[:2] == (0, b"hello\n")
    assert not alive(int(said.read_text()))


def test_a_daemon_of_a_program_that_hangs_is_killed_with_it(tmp_path: Path) -> None:
    said = tmp_path / "said"
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    started = time.monotonic()
    with pytest.raises(ArmError, match=r"hung: it did not end within 2 s"):
        run_to_end([sys.executable, "-c", DAEMON.format(said=str(said), then=deaf)], timeout_s=2.0)
    assert time.monotonic() - started < 2 + leash.STOPPING_SECONDS
    assert not alive(int(said.read_text()))


@pytest.mark.parametrize("ready", [True, False], ids=["stopped", "never ready"])
def test_a_daemon_of_a_server_is_killed_with_it(tmp_path: Path, ready: bool) -> None:
    said = tmp_path / "said"
    serve = (
        "import http.server as h; h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler)"
    )
    then = f"{serve}.serve_forever()" if ready else "time.sleep(60)"
    words = [sys.executable, "-c", DAEMON.format(said=str(said), then=then), "{port}"]
    if ready:
        server = ServerProcess(words, ready="/", timeout_s=30.0)
        assert alive(int(said.read_text()))
        server.stop()
    else:
        with pytest.raises(ArmError, match="the server hung"):
            ServerProcess(words, ready="/", timeout_s=2.0)
    assert not alive(int(said.read_text()))


def test_a_daemon_does_not_outlive_a_harness_killed_with_9(tmp_path: Path) -> None:
    daemon, said = tmp_path / "daemon", tmp_path / "said"
    program = DAEMON.format(said=str(daemon), then="print(os.getpid(), flush=True); time.sleep(60)")
    owner = subprocess.Popen([sys.executable, "-c", OWNER.format(program=program, said=str(said))])
    eventually(lambda: said.exists() and said.read_text().endswith("\n"))
    pids = [int(path.read_text()) for path in (daemon, said)]
    assert all(map(alive, pids))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    eventually(lambda: not any(map(alive, pids)))


def test_a_missing_program_is_one_line() -> None:
    with pytest.raises(ArmError, match=r"^/no/such/program cannot be started: No such file or directory$"):
        run_to_end(["/no/such/program"], timeout_s=5.0)
