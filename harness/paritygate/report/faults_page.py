"""The kill matrix as a self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.report.page import environment
from paritygate.shown import shown

ROOMS = {"engine": "Defects of engines", "gate": "Defects of gates"}


def _headline(matrix: Mapping[str, Any]) -> str:
    caught, tried = matrix["caught"], matrix["tried"]
    return f"{caught} of {tried} planted faults are caught, {matrix['named']} of them by name"


def _advice(matrix: Mapping[str, Any], unexplained: list[Mapping[str, Any]]) -> str:
    if matrix["clean_red"]:
        return "The clean engine is red: nothing that is red below proves anything. Mend that first."
    if unexplained:
        names = ", ".join(trial["fault"] for trial in unexplained[:6])
        return f"Nobody explains {names}: sharpen a gate, or say why in `survives`."
    rest = matrix["not_applicable"]
    return f"Every row opens. {rest} rows wait for their room to be built." if rest else "Every row opens."


def faults_page(matrix: Mapping[str, Any]) -> str:
    """The HTML document of one run of `paritygate faults` (the document of faults.json)."""
    trials = matrix["trials"]
    unexplained = [t for t in trials if t["state"] == "dead" or (t["state"] == "survived" and not t["note"])]
    rooms = [*ROOMS, *dict.fromkeys(t["room"] for t in trials if t["room"] not in ROOMS)]
    return shown(
        environment()
        .get_template("faults.html.j2")
        .render(
            matrix=matrix,
            state="fail" if unexplained or matrix["clean_red"] else "pass",
            headline=_headline(matrix),
            advice=_advice(matrix, unexplained),
            columns=list(dict.fromkeys(gate for trial in trials for gate in trial["gates"])),
            rooms=[
                (room, ROOMS.get(room, room), rows)
                for room in rooms
                if (rows := [trial for trial in trials if trial["room"] == room])
            ],
        )
    )
