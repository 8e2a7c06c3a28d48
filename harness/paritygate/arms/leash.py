"""Runs a command that must not outlive the process that started it, nor leave anything behind, however either ended.

Started as `python leash.py COMMAND...` with a pipe on standard input that the parent holds open. A parent that is
killed with -9 cannot stop its servers, but the kernel closes its end of the pipe; that is the sign. On Linux the leash
is the reaper of all that the command starts, so that a daemon that left its session is found too; elsewhere it finds
what still has a parent below it. Run by path, and with the standard library alone, so that it starts in a few
milliseconds; `leashed` is the parent's side.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # what is imported here is waited for at every answer of a program
    from collections.abc import Iterable

STOPPING_SECONDS = 5.0
POLL_SECONDS = 0.01
NOT_STARTED = 127
AT_ONCE = b"!"  # what the parent writes so that nobody is asked first
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def words(command: list[str]) -> list[str]:
    """What to start instead of the command; give it its own session and a pipe on standard input."""
    return [sys.executable, "-I", "-S", __file__, *command]


def _adopt() -> None:
    """Become the parent of whatever the command's children leave behind; Linux alone knows how."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _parents() -> Iterable[tuple[int, int]]:
    """Every process and its parent."""
    if sys.platform != "linux":
        import subprocess

        listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True).stdout
        yield from (tuple(map(int, line.split())) for line in listed.splitlines())  # type: ignore[misc]
        return
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    yield int(name), int(stat.read().rpartition(b")")[2].split()[1])
            except OSError:  # it ended
                continue


def _below(pid: int) -> list[int]:
    """The processes that descend from one."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found = list(children.get(pid, ()))
    for each in found:
        found += children.get(each, ())
    return found


def _send(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:  # it ended, or is not ours to end
            continue


def _sweep(group: int) -> None:
    """Kill what is left, until nothing is; what a killed parent leaves becomes ours, and is killed in the next turn."""
    _send(signal.SIGKILL, [-group])
    deadline = time.monotonic() + STOPPING_SECONDS
    while time.monotonic() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            _send(signal.SIGKILL, _below(os.getpid()))
            time.sleep(POLL_SECONDS)


def _main(command: list[str]) -> int:
    _adopt()
    silent = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    try:
        child = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=silent,
            setpgroup=0,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores
        )
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return NOT_STARTED
    ended = threading.Event()

    def watch() -> None:
        if os.read(0, 1) != AT_ONCE:
            _send(signal.SIGTERM, [child])
            if ended.wait(STOPPING_SECONDS):
                return
        _send(signal.SIGKILL, _below(os.getpid()))

    signal.signal(signal.SIGTERM, lambda *_: _send(signal.SIGTERM, [child]))
    threading.Thread(target=watch, daemon=True).start()
    while True:
        pid, status = os.waitpid(-1, 0)  # orphans of the command among them
        if pid == child:
            break
    ended.set()
    _sweep(child)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(_main(sys.argv[1:]))
