"""Ctrl-C once, twice, early and late: what was found is on the disk, and the exit code is 4."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from two_cases import TOY

# Never answers, and is deaf to being asked to end.
ENGINE = """\
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path({started!r}).touch()
time.sleep(60)
"""
POLICY = (
    TOY
    + """\
[arms.one]
kind = "command"
output = "text"
command = ["{python}", "{engine}", "{{prompt}}"]

[arms.two]
kind = "command"
output = "text"
command = ["{python}", "{engine}", "{{prompt}}"]

[[cases]]
name = "slow"
prompt = "slow"
max_tokens = 1

[[structure.rules]]
name = "first"
kind = "absent-pattern"
pattern = "never"
files = ["*.py"]
why = "A gate that is done before the other begins."
planted = {{ file = "engine.py", append = "never" }}

[claims.then]
kind = "identity"
arms = ["one", "two"]
cases = ["slow"]
"""
)


@pytest.fixture
def started(tmp_path: Path) -> Path:
    path = tmp_path / "started"
    engine = tmp_path / "engine.py"
    engine.write_text(ENGINE.format(started=str(path)), encoding="utf-8")
    (tmp_path / "paritygate.toml").write_text(POLICY.format(python=sys.executable, engine=engine), "utf-8")
    return path


def verifying(root: Path, started: Path, *, before: str = "") -> subprocess.Popen[str]:
    """`verify` with a report, at work on the case that never ends; `before` is run in the same process."""
    words = ["verify", "--root", str(root), "--report", str(root / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; {before}\nfrom paritygate.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not started.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    return process


def told(root: Path) -> dict:
    return json.loads((root / "out" / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("numbers", [
    [signal.SIGINT],
    [signal.SIGTERM],
    [signal.SIGINT, signal.SIGINT],
    [signal.SIGINT] * 5,
    [signal.SIGTERM, signal.SIGINT],
])  # fmt: skip
def test_a_run_that_is_interrupted_leaves_what_it_found(
    tmp_path: Path, started: Path, numbers: list[signal.Signals]
) -> None:
    process = verifying(tmp_path, started)
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.03)
    # Long before the program that is being waited for would end.
    out, err = process.communicate(timeout=30)
    assert process.returncode == 4, out + err
    assert "Traceback" not in out + err
    report = told(tmp_path)
    assert (report["interrupted"], report["exit"]) == (True, 4)
    assert [check["name"] for check in report["checks"]] == ["structure/first"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.json", "junit.xml", "index.html"}


def test_answers_that_came_before_are_compared(tmp_path: Path, started: Path) -> None:
    """Two claims are done, one with a difference, while a third never ends: both are told, none is a pass it is not."""
    policy = tmp_path / "paritygate.toml"
    text = policy.read_text(encoding="utf-8")
    other = f'command = ["{sys.executable}", "-c", "print(SAID)", "{{prompt}}"]'
    arms = "".join(
        f'\n[arms.{name}]\nkind = "command"\noutput = "text"\n{other.replace("SAID", said)}\n'
        for name, said in (("three", "1"), ("four", "1"), ("five", "2"))
    )
    cases = '\n[[cases]]\nname = "quick"\nprompt = "quick"\nmax_tokens = 1\n'
    quick = "".join(
        f'\n[claims.{name}]\nkind = "identity"\narms = ["three", "{arm}"]\ncases = ["quick"]\n'
        for name, arm in (("alike", "four"), ("apart", "five"))
    )
    head, slow = text.split("[claims.then]")
    policy.write_text(f"{head}{arms}{cases}{quick}[claims.then]{slow}", encoding="utf-8")
    process = verifying(tmp_path, started)
    time.sleep(2)  # the other lane may still be at the quick ones
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 4, out + err
    outcomes = {check["name"]: check["outcome"] for check in told(tmp_path)["checks"]}
    assert outcomes == {
        "structure/first": "pass",
        "identity/alike/four/quick": "pass",
        "identity/apart/five/quick": "inconclusive",
    }


def test_who_asks_again_does_not_wait_for_what_does_not_end(tmp_path: Path, started: Path) -> None:
    """Closing the arms takes for ever here; the report is there before, and the second Ctrl-C ends the process."""
    stuck = "import time; from paritygate.gates.arm_pool import ArmPool; ArmPool.close = lambda self: time.sleep(60)"
    process = verifying(tmp_path, started, before=stuck)
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 30
    while not (tmp_path / "out" / "index.html").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert told(tmp_path)["interrupted"]
    assert process.poll() is None
    again = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert time.monotonic() - again < 10
    assert err == "interrupted twice: ended at once, with what was found until then\n"


def test_nothing_of_an_arm_outlives_two_interruptions(tmp_path: Path, started: Path) -> None:
    process = verifying(tmp_path, started)
    leashes = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in leashes):
        assert time.monotonic() < deadline
        time.sleep(0.02)
