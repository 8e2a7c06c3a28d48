"""`paritygate explain`: a check's evidence, from the report that a run left."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from paritygate.console import Console
from paritygate.run import RunError, read


class NoEvidence(Exception):
    """A report that is not there, or has no such check; the message says what there is."""


def find(report: Path, name: str) -> list[dict[str, Any]]:
    """The checks whose name is, or holds, `name`. Raises NoEvidence."""
    path = report if report.is_file() or report.suffix == ".json" else report / "report.json"
    if not path.exists():
        raise NoEvidence(f"{path}: there is no report: run `paritygate verify --report {path.parent}` first")
    try:
        checks = [asdict(check) for check in read(path).checks]
    except RunError as error:
        raise NoEvidence(str(error)) from error
    exact = [check for check in checks if check["name"] == name]
    found = exact or [check for check in checks if name in check["name"]]
    if not checks:
        raise NoEvidence(f"{path}: the run ended before its first check: let it finish")
    if not found:
        names = ", ".join(check["name"] for check in checks[:12])
        more = " …" if len(checks) > 12 else ""
        raise NoEvidence(f"{path}: no check's name holds {name!r}; there are {len(checks)}: {names}{more}")
    return found


def _side(side: dict[str, Any]) -> str:
    alternatives = ", ".join(f"{text!r} ({i}) {logprob:.4f}" for i, text, logprob in side.get("top", ()))
    gap = side.get("gap")
    token = f"{side.get('token')!r} ({side.get('token_id')})"
    return (
        f"{token}   top-2: {alternatives or 'not told'}   gap: {'not told' if gap is None else f'{gap:.4g}'}"
    )


def show_diff(console: Console, blocks: list[dict[str, Any]]) -> None:
    """Aligned tokens, what is alike shortened to its end."""
    for block in blocks:
        ours = "".join(text for _, _, text in block["reference"])
        theirs = "".join(text for _, _, text in block["candidate"])
        if block["op"] == "equal":
            console.print(f"    {ours[-70:]!r}", style="dim", markup=False, highlight=False)
            continue
        if ours:
            console.print(f"  - {ours!r}  {[i for _, i, _ in block['reference']]}", style="red", markup=False)
        if theirs:
            console.print(
                f"  + {theirs!r}  {[i for _, i, _ in block['candidate']]}", style="green", markup=False
            )


def show_at(console: Console, details: dict[str, Any]) -> None:
    """The first difference: what each side says there, and how sure it is; by byte where no ids were compared."""
    at = details["at"]
    sure: dict[Any, str] = {True: "decided", False: "a near-tie"}
    words = sure.get(details.get("decided"), "margins not told")
    where = f"token {details['index']}" if "index" in details else f"byte {details['byte']}"
    console.print(f"  first difference at {where}, {words}", highlight=False)
    console.print(f"    reference  {_side(at['reference'])}", markup=False, highlight=False)
    console.print(f"    candidate  {_side(at['candidate'])}", markup=False, highlight=False)


def _triage(console: Console, told: dict[str, Any]) -> None:
    console.print("  triage:", style="bold")
    for finding in told.get("findings", ()):
        console.print(f"    {finding}", markup=False, highlight=False)
    for fork in (told.get("reanchor") or {}).get("forks", ()):
        sides = [
            "; ".join(f"{text!r} ({i}) {logprob:.4f}" for i, text, logprob in fork["top"][side])
            for side in ("reference", "arm")
        ]
        gaps = " and ".join("not told" if gap is None else f"{gap:.4g}" for gap in fork["gaps"])
        line = f"      fork at {fork['index']}: {sides[0] or fork['reference_id']} | {sides[1] or fork['arm_id']}"
        console.print(f"{line} | gaps {gaps}", style="dim", markup=False, highlight=False, soft_wrap=True)
    for problem in told.get("problems", ()):
        console.print(f"    not told: {problem}", style="yellow", markup=False, highlight=False)
    for command in told.get("reproduce", ()):
        # One line each, whatever the terminal's width: they are there to be copied.
        console.print("  see it again: ", style="bold", end="")
        console.print(command, markup=False, highlight=False, soft_wrap=True)


def show(console: Console, check: dict[str, Any]) -> None:
    """Print one check for a person; evidence of a kind that is not known here follows as JSON."""
    console.print(f"[bold]{escape(check['name'])}[/]  {check['outcome']}  {check['verdict']}")
    console.print(f"  {check['headline']}", markup=False, highlight=False)
    details = dict(check["details"])
    try:
        _show_known(console, details)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        console.print(f"  the evidence is cut or of another version ({error!r}):", style="yellow")
    for key, value in details.items():
        console.print(f"  {key}: {json.dumps(value, ensure_ascii=False)}", markup=False, highlight=False)


def _show_known(console: Console, details: dict[str, Any]) -> None:
    """Prints and takes out what has a form of its own; what cannot be printed stays."""
    for cause in details.pop("causes", ()):
        console.print(f"  cause: {cause}", markup=False, highlight=False)
    if details.get("at"):
        show_at(console, details)
        for key in ("at", "index", "decided"):
            details.pop(key, None)
    for side in ("reference", "candidate"):
        if isinstance(told := details.get(side), dict):
            console.print(f"  {side}: {told['arm']}", markup=False, highlight=False)
            console.print(f"    {told['text']!r}", markup=False, highlight=False)
            details.pop(side)
    if blocks := details.get("diff"):
        console.print("  tokens (- reference, + candidate):")
        show_diff(console, blocks)
    details.pop("diff", None)
    if printed := details.pop("printed", ""):
        console.print("  it printed:")
        console.print(printed, style="dim", markup=False, highlight=False)
    if isinstance(told := details.get("triage"), dict):
        _triage(console, told)
        details.pop("triage")
        details.pop("reanchored", None)  # the same forks, told above with what each side preferred
