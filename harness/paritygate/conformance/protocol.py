"""Checks of an adapter's life: made, opened, closed, hung, and gone."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from paritygate.arms.base import ArmError, Capabilities
from paritygate.conformance.subject import PLAIN, Broken, Subject

MARK = "PARITYGATE_CONFORMANCE"
SHORT_SECONDS = 0.01
PATIENCE_SECONDS = 30.0
GONE_SECONDS = 5.0


def options(subject: Subject) -> str:
    """The options are a struct that refuses what it does not know, with a timeout."""
    kind: Any = getattr(subject.cls, "Options", None)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        raise Broken("the class has no `Options` that is a msgspec.Struct")
    if "timeout_s" not in kind.__struct_fields__:
        raise Broken("`Options` has no `timeout_s`")
    if not isinstance(getattr(subject.cls, "in_process", None), bool):
        raise Broken("the class does not say `in_process`, True or False")
    try:
        msgspec.convert(subject.options | {"no_such_option": 1}, kind)
    except msgspec.ValidationError:
        return f"{len(kind.__struct_fields__)} options, an unknown one is refused"
    raise Broken("an option that it does not know is taken in silence: add forbid_unknown_fields=True")


def capabilities(subject: Subject) -> str:
    """An arm that is not open says what it can give."""
    made = subject.make()
    if not isinstance(made.capabilities, Capabilities):
        raise Broken("`capabilities` is no Capabilities")
    if made.name != "conformance":
        raise Broken(f"its name is {made.name!r}, not the one that it was given")
    given = [name for name in Capabilities.__struct_fields__ if getattr(made.capabilities, name)]
    if made.capabilities.raw_logits and not made.capabilities.teacher_forcing:
        raise Broken("it declares raw_logits without teacher_forcing")
    if made.capabilities.resets and not made.capabilities.forgets:
        raise Broken("it declares resets without forgets")
    return ", ".join(given) or "text alone"


def opening(subject: Subject) -> str:
    """`close` is harmless before `open` and twice; `open` is harmless twice; a closed arm opens again."""
    made = subject.make()
    made.close()
    made.open()
    made.open()
    first = made.generate(PLAIN)
    made.close()
    made.close()
    made.open()
    try:
        second = made.generate(PLAIN)
    finally:
        made.close()
    if first.text != second.text:
        raise Broken(f"opened again, it answers {second.text[:40]!r} where it said {first.text[:40]!r}")
    return "closed early, opened twice, closed twice, opened again"


def timeout(subject: Subject) -> str:
    """A timeout that nothing can meet ends in ArmError, soon."""
    started = time.monotonic()
    try:
        made = subject.make(timeout_s=SHORT_SECONDS)
        try:
            made.open()
            made.generate(PLAIN)
        finally:
            made.close()
    except ArmError as error:
        took = time.monotonic() - started
        if took > PATIENCE_SECONDS:
            raise Broken(
                f"with timeout_s = {SHORT_SECONDS:g} it took {took:.0f} s to say {error.what!r}"
            ) from None
        return f"timeout_s = {SHORT_SECONDS:g} ended after {took:.1f} s: {error.what}"
    took = time.monotonic() - started
    if took > max(1.0, 20 * SHORT_SECONDS):
        raise Broken(
            f"with timeout_s = {SHORT_SECONDS:g} it answered after {took:.1f} s: nothing kept the limit"
        )
    return f"it answered within {took:.2f} s, sooner than a limit could be missed"


def left_running(mark: str) -> list[int]:
    """Processes that carry the mark in their environment, ours apart; where that cannot be read, our children."""
    own = os.getpid()
    if Path("/proc/self/environ").exists():
        needle = f"{MARK}={mark}".encode()
        found = []
        for place in Path("/proc").glob("[0-9]*/environ"):
            try:
                if needle in place.read_bytes().split(b"\0") and int(place.parent.name) != own:
                    found.append(int(place.parent.name))
            except OSError:
                continue
        return found
    told = subprocess.run(["ps", "-ax", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)
    rows = [tuple(map(int, line.split())) for line in told.stdout.splitlines()]
    return [pid for pid, parent in rows if parent == own]


def nothing_left(subject: Subject) -> str:
    """After `close` no process of the arm's is left."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    before = os.environ.get(MARK)
    os.environ[MARK] = mark
    # Python's own tracker of shared resources starts with the first hosted process and outlives it.
    tracked = set(left_running(mark))
    try:
        made = subject.make()
        made.open()
        try:
            made.generate(PLAIN)
        finally:
            made.close()
        deadline = time.monotonic() + GONE_SECONDS
        while (left := [pid for pid in left_running(mark) if pid not in tracked and not _tracker(pid)]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.05)
    finally:
        if before is None:
            os.environ.pop(MARK, None)
        else:
            os.environ[MARK] = before
    if left:
        raise Broken(f"{len(left)} process(es) are left after close: {', '.join(map(str, left))}")
    return "no process is left"


def _tracker(pid: int) -> bool:
    try:
        return b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
