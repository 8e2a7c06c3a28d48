"""A run that is killed with -9 leaves no file behind, whichever arm was answering."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

POLICY = """\
schema = 1

[checkpoint]
name = "toy"
model = "/no/such/model"

[arms.one]
{arm}

[arms.two]
{arm}

[[cases]]
name = "c"
prompt = "x"
max_tokens = 1

[claims.same]
kind = "identity"
arms = ["one", "two"]
cases = ["c"]
"""


@pytest.mark.parametrize(
    "arm",
    [
        'kind = "command"\noutput = "text"\ncommand = ["{python}", "{engine}", "{{prompt_file}}"]',
        'kind = "tokenline"\nbackend = "torch"',
    ],
    ids=["command", "hosted"],
)
def test_a_killed_run_leaves_no_file(tmp_path: Path, arm: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    started = tmp_path / "started"
    engine = tmp_path / "engine.py"
    engine.write_text(
        f"import os, pathlib, sys, time\npathlib.Path({str(started)!r}).write_text(str(os.getpid()))\n"
        "assert open(sys.argv[1]).read() == 'x'\ntime.sleep(20)\n",
        encoding="utf-8",
    )
    filled = arm.format(python=sys.executable, engine=engine)
    (tmp_path / "paritygate.toml").write_text(POLICY.format(arm=filled), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", "from paritygate.cli import main; main()", "verify", "--root", str(tmp_path)],
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not started.exists() and process.poll() is None:
        if "hosted" in os.environ.get("PYTEST_CURRENT_TEST", "") and _children(process.pid):
            break
        time.sleep(0.02)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while started.exists() and Path(f"/proc/{started.read_text()}").exists():
        assert time.monotonic() < deadline, "the program outlived the run that asked it"
        time.sleep(0.02)
    assert [path.name for path in scratch.rglob("*") if path.is_file()] == []


def _children(pid: int) -> bool:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return bool(listed.exists() and len(listed.read_text().split()) > 1)
