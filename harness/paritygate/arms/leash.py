"""Runs a command that must not outlive the process that started it, however that one ended.

Started as `python leash.py COMMAND...` with a pipe on standard input that the parent holds open and never writes to.
A parent that is killed with -9 cannot stop its servers, but the kernel closes its end of the pipe; that is the sign.
Run by path, and with the standard library alone, so that it starts in a few milliseconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

STOPPING_SECONDS = 5.0


def words(command: list[str]) -> list[str]:
    """What to start instead of the command; give it its own session and a pipe on standard input."""
    return [sys.executable, "-S", __file__, *command]


def _main(command: list[str]) -> int:
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return 127

    def watch() -> None:
        while os.read(0, 1024):
            pass
        child.terminate()
        try:
            child.wait(STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
        # What the child started is in the same process group; so is this process, which goes with it.
        os.killpg(os.getpgid(0), signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    threading.Thread(target=watch, daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    os._exit(_main(sys.argv[1:]))
