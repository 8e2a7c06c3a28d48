"""The kill matrix as a page of documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.shown import shown

LONGEST = 260
TITLES = {"engine": "Defects of engines", "gate": "Defects of gates"}


def _cell(text: str) -> str:
    flat = " ".join(text.split())
    flat = flat if len(flat) <= LONGEST else f"{flat[: LONGEST - 1]}…"
    return flat.replace("|", "\\|").replace("<", "&lt;").replace("\ufffd", "U+FFFD")


def _row(trial: Mapping[str, Any]) -> str:
    named = trial["named_by"]
    told = named or (trial["reds"][0] if trial["reds"] else None)
    if trial["state"] == "not applicable":
        return f"| `{trial['fault']}` | {_cell(trial['defect'])} | – | not applicable | | {_cell(trial['note'])} |"
    result = "yes" if trial["state"] == "caught" else f"**{trial['state']}**"
    if trial["state"] == "caught" and trial["expect"] != "red":
        result = f"yes ({trial['expect']})"
    gates = ", ".join(trial["gates"]) or "–"
    after = "" if trial["first_red"] is None else f"{trial['first_red']:.0f} s"
    says = _cell(told["headline"]) if told else _cell(trial["note"])
    if trial["state"] == "caught" and named is None and told:
        says = f"(does not name it) {says}"
    return f"| `{trial['fault']}` | {_cell(trial['defect'])} | {gates} | {result} | {after} | {says} |"


def markdown(matrix: Mapping[str, Any]) -> str:
    """The page of one run of `paritygate faults` (the document of faults.json)."""
    lines = [
        "# Kill matrix",
        "",
        "Each row is a defect that a real engine, or a real gate, shipped with. It is planted in a copy of this",
        "tree, by changing source text and nothing else, and the gates are run there. `paritygate faults` writes",
        "this page.",
        "",
        f"{matrix['caught']} of {matrix['tried']} planted faults are caught, and the diagnosis names the planted",
        f"cause of {matrix['named']}; {matrix['not_applicable']} rows wait for their room to be built. The clean",
        f"engine was judged {matrix['clean_runs']} times by the same gates: {matrix['clean_red']} red.",
        "",
        f"Commit {matrix['commit']}, {matrix['started']}, {matrix['machine']}. Times count from the start of the",
        "gates to the first red.",
    ]
    for room, title in TITLES.items():
        rows = [trial for trial in matrix["trials"] if trial["room"] == room]
        if rows:
            lines += ["", f"## {title}", "", "| fault | defect | red | caught | after | what the gate says |"]
            lines += ["|---|---|---|---|---|---|", *map(_row, rows)]
    survivors = [trial for trial in matrix["trials"] if trial["state"] == "survived"]
    if survivors:
        lines += ["", "## Survivors"]
        lines += ["", *(f"* `{trial['fault']}`: {trial['note'] or 'not explained'}" for trial in survivors)]
    return shown("\n".join(lines) + "\n")
