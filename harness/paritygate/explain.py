"""`paritygate explain`: a check's evidence, from the report that a run left."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from paritygate.run import RunError, read


class NoEvidence(Exception):
    """A report that is not there, or has no such check; the message says what there is."""


def find(report: Path, name: str) -> list[dict[str, Any]]:
    """The checks whose name is, or holds, `name`. Raises NoEvidence."""
    try:
        checks = [asdict(check) for check in read(report).checks]
    except RunError as error:
        raise NoEvidence(str(error)) from error
    exact = [check for check in checks if check["name"] == name]
    found = exact or [check for check in checks if name in check["name"]]
    if not found:
        names = ", ".join(check["name"] for check in checks[:12])
        raise NoEvidence(f"{report}: no check's name holds {name!r}; there are {len(checks)}: {names} …")
    return found


def _side(side: dict[str, Any]) -> str:
    alternatives = ", ".join(f"{text!r} ({i}) {logprob:.4f}" for i, text, logprob in side.get("top", ()))
    gap = side.get("gap")
    token = f"{side.get('token')!r} ({side.get('token_id')})"
    return (
        f"{token}   top-2: {alternatives or 'not told'}   gap: {'not told' if gap is None else f'{gap:.4g}'}"
    )


def _diff(console: Console, blocks: list[dict[str, Any]]) -> None:
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


def show(console: Console, check: dict[str, Any]) -> None:
    """Print one check for a person; evidence of a kind that is not known here follows as JSON."""
    console.print(f"[bold]{escape(check['name'])}[/]  {check['outcome']}  {check['verdict']}")
    console.print(f"  {check['headline']}", markup=False, highlight=False)
    details = dict(check["details"])
    for cause in details.pop("causes", ()):
        console.print(f"  cause: {cause}", markup=False, highlight=False)
    at = details.pop("at", None)
    if at:
        decided = {True: "decided", False: "a near-tie", None: "margins not told"}[
            details.pop("decided", None)
        ]
        console.print(f"  first difference at token {details.pop('index', '?')}, {decided}", highlight=False)
        console.print(f"    reference  {_side(at['reference'])}", markup=False, highlight=False)
        console.print(f"    candidate  {_side(at['candidate'])}", markup=False, highlight=False)
    for side in ("reference", "candidate"):
        if isinstance(told := details.pop(side, None), dict):
            console.print(f"  {side}: {told['arm']}", markup=False, highlight=False)
            console.print(f"    {told['text']!r}", markup=False, highlight=False)
    if blocks := details.pop("diff", None):
        console.print("  tokens (- reference, + candidate):")
        _diff(console, blocks)
    if printed := details.pop("printed", ""):
        console.print("  it printed:")
        console.print(printed, style="dim", markup=False, highlight=False)
    for key, value in details.items():
        console.print(f"  {key}: {json.dumps(value, ensure_ascii=False)}", markup=False, highlight=False)
