"""`paritygate golden review`: pending goldens one after the other, each against what is accepted now."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paritygate.compare.diff import diff
from paritygate.compare.identity import compare
from paritygate.console import Console
from paritygate.explain import show_at, show_diff
from paritygate.golden.golden import Acceptance, Golden, GoldenError
from paritygate.golden.provenance import changes, summary
from paritygate.golden.store import Store

KEYS = "[a]ccept  [r]eject  [s]kip  [q]uit"
CONTEXT = 160  # characters of the prompt's end and of the answer's beginning

Ask = Callable[[str], str | None]


@dataclass
class Reviewed:
    """What came of it, by case; `left` were not decided."""

    accepted: list[str]
    rejected: list[str]
    left: list[str]


def pressed(prompt: str) -> str | None:
    """One key from a terminal, or a line of what is piped in; None at its end."""
    print(prompt, end="  ", flush=True)
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        print(line.strip())
        return line.strip() if line else None
    import termios  # only where there is a terminal
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        key = os.read(terminal, 1).decode(errors="replace")
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    print(key)
    return None if key in ("", "\x04") else key


def typed(prompt: str) -> str | None:
    """A line; None at the end of input."""
    print(prompt, end=" ", flush=True)
    line = sys.stdin.readline()
    if line and not sys.stdin.isatty():
        print(line.strip())
    return line.strip() if line else None


def _prompt_text(golden: Golden) -> str:
    case = golden.case
    if case.messages is not None:
        return "\n".join(f"{message.role}: {message.content}" for message in case.messages)
    return case.prompt or ""


def show_pending(console: Console, pending: Golden, accepted: Golden | None, floor: float) -> None:
    """The answer in its context, token by token against the accepted one, and what changed of its provenance."""
    console.print(f"  asked by  {summary(pending)}", markup=False, highlight=False)
    asked = _prompt_text(pending)
    console.print(f"  prompt    {asked[-CONTEXT:]!r}", markup=False, highlight=False)
    if accepted is None:
        console.print(f"  new       {pending.text!r}", style="green", markup=False, highlight=False)
        return
    if accepted.case != pending.case:
        console.print("  the case itself has changed since", style="yellow", highlight=False)
    ours, theirs = accepted.as_stream(), pending.as_stream()
    found = compare(ours, theirs, floor=floor)
    console.print(f"  answer    {found.headline}", markup=False, highlight=False)
    if found.details.get("at"):
        before = "".join(position.token for position in accepted.positions[: found.details.get("index", 0)])
        if "index" not in found.details:
            before = ours.text_bytes[: found.details["byte"]].decode("utf-8", errors="ignore")
        console.print(f"  after     {(asked + before)[-CONTEXT:]!r}", markup=False, highlight=False)
        show_at(console, found.details)
        show_diff(console, diff(ours, theirs))
    changed = changes(accepted, pending)
    console.print("  provenance (- accepted, + pending):" if changed else "  provenance is unchanged")
    for name, before_, after in changed:
        if before_ is not None:
            console.print(f"    - {name}: {before_}", style="red", markup=False, highlight=False)
        if after is not None:
            console.print(f"    + {name}: {after}", style="green", markup=False, highlight=False)


def review(
    store: Store,
    waiting: Sequence[tuple[str, str]],
    console: Console,
    *,
    today: str,
    floor: float,
    key: Ask = pressed,
    line: Ask = typed,
) -> Reviewed:
    """Show every (layer, case) and do what the keys say; quitting, or the end of input, leaves the rest as it is.

    Raises GoldenError where a file cannot be written: what was decided until then stays decided.
    """
    told = Reviewed([], [], [])
    for number, (layer, case) in enumerate(waiting, 1):
        console.rule(f"{number} of {len(waiting)}: {case} ({layer})", style="bold")
        readable = _shown(store, layer, case, console, floor)
        decision = _decided(key, line, readable)
        if decision is None:
            told.left += [name for _, name in waiting[number - 1 :]]
            break
        if decision == "":
            told.left.append(case)
        elif decision == "reject":
            store.reject(case, layer)
            told.rejected.append(case)
        else:
            store.accept(case, Acceptance(date=today, reason=decision.removeprefix("accept ")), layer)
            told.accepted.append(case)
    return told


def _shown(store: Store, layer: str, case: str, console: Console, floor: float) -> bool:
    try:
        pending = store.load(case, pending=True, layer=layer)
    except GoldenError as error:
        console.print(f"  {error}", style="red", markup=False, highlight=False)
        return False
    accepted, said = None, ""
    if store.path(case, layer=layer).is_file():
        try:
            accepted = store.load(case, layer=layer)
        except GoldenError as error:
            said = f"  the accepted one cannot be read: {error}"
    console.print(said, style="red", markup=False, highlight=False, end="\n" if said else "")
    show_pending(console, pending, accepted, floor)
    return True


def _decided(key: Ask, line: Ask, readable: bool) -> str | None:
    """ "accept REASON", "reject", "" to skip, None to quit."""
    keys = KEYS if readable else KEYS.replace("[a]ccept  ", "")
    while True:
        answer = key(keys)
        choice = "q" if answer is None else answer[:1].lower()
        if choice == "q":
            return None
        if choice in ("r", "s"):
            return "reject" if choice == "r" else ""
        if choice == "a" and readable:
            reason = line("  why is it right?")
            if reason is None:
                return None
            if reason:
                return f"accept {reason}"
            print("  a golden is accepted for a reason: give one, or press another key")
