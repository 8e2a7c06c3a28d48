"""A run as one self-contained page: the verdict, a map of every check, what went wrong and where, times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from paritygate.report import plots
from paritygate.report.depth import depth_plot
from paritygate.report.headline import ORDER, WORDS, advice, by_gate, counts, recalled, verdict, worst_first
from paritygate.run import Run
from paritygate.shown import shown
from paritygate.verdict import Check, Exit, Outcome

TEMPLATES = Path(__file__).parent / "templates"
STATES = {
    Outcome.PASS: "pass",
    Outcome.FAIL: "fail",
    Outcome.INCONCLUSIVE: "unsure",
    Outcome.COULD_NOT_RUN: "stuck",
}
# Tokens of context kept on each side of a difference; longer agreement is folded to a count.
CONTEXT = 10
# Forks of a re-anchored answer that are drawn; the rest is counted.
FORKS = 6
# Evidence that the page draws or says elsewhere; whatever else a check holds is shown as it is.
DRAWN = {
    "diff", "at", "figures", "violations", "places", "why", "kind", "planted", "dead", "unresolved", "manifests",
    "reference", "candidate", "causes", "counters", "triage", "reanchored",
}  # fmt: skip


def environment() -> Environment:
    """Where the templates of reports/ are found, and what they may call."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {"visible": visible, "pretty": pretty, "duration": duration}
    return made


def page(run: Run) -> str:
    """The HTML document."""
    return shown(
        environment()
        .get_template("page.html.j2")
        .render(
            run=run,
            state={Exit.PASS: "pass", Exit.INCONCLUSIVE: "unsure", Exit.COULD_NOT_RUN: "stuck"}.get(
                run.exit, "fail"
            ),
            word=WORDS[run.exit],
            verdict=verdict(run),
            advice=advice(run),
            recalled=recalled(run),
            counts={STATES[outcome]: (str(outcome), count) for outcome, count in counts(run.checks).items()},
            gates=[_gate(name, checks) for name, checks in by_gate(run.checks).items()],
            problems=[_check(check) for check in worst_first(run.checks)],
            figures=[_figure(name, figure) for name, figure in run.figures.items() if "ns" in figure],
        )
    )


def _gate(name: str, checks: list[Check]) -> dict[str, Any]:
    tally = counts(checks)
    worst = next(outcome for outcome in ORDER if tally[outcome])
    return {
        "name": name,
        "state": STATES[worst],
        "checks": [_check(check) for check in checks],
        "seconds": sum(check.seconds for check in checks),
        "passed": tally[Outcome.PASS],
    }


def _check(check: Check) -> dict[str, Any]:
    details = check.details
    return {
        "name": check.name,
        "short": check.name.removeprefix(f"{check.gate}/"),
        "anchor": "".join(c if c.isalnum() else "-" for c in check.name),
        "state": STATES[check.outcome],
        "verdict": str(check.verdict),
        "headline": check.headline,
        "seconds": check.seconds,
        "causes": details.get("causes") or [],
        "diff": aligned(details.get("diff") or []),
        "sides": _sides(details),
        "top": _top(details.get("at") or {}),
        "violations": details.get("violations") or [],
        "unresolved": details.get("unresolved") or [],
        "dead": details.get("dead") or [],
        "why": details.get("why", ""),
        "triage": _triage(details.get("triage") or {}),
        "rest": {
            key: value
            for key, value in details.items()
            if key not in DRAWN and value not in (None, [], {}, "")
        },
    }


def _triage(told: dict[str, Any]) -> dict[str, Any]:
    """What a triage found, as the page draws it; {} where there was none."""
    if not told:
        return {}
    forks = (told.get("reanchor") or {}).get("forks") or []
    layers = told.get("layers") or {}
    first = (layers.get("first") or {}).get("name")
    return {
        "findings": told.get("findings") or [],
        "problems": told.get("problems") or [],
        "reproduce": told.get("reproduce") or [],
        "forks": forks[:FORKS],
        "more_forks": max(0, len(forks) - FORKS),
        "depth": Markup(depth_plot(layers.get("taps") or [], first)),
    }


def _sides(details: dict[str, Any]) -> tuple[str, str]:
    names = []
    for side, default in (("reference", "expected"), ("candidate", "got")):
        value = details.get(side)
        arm = value.get("arm") if isinstance(value, dict) else None
        names.append(f"{default} ({arm})" if arm else default)
    return names[0], names[1]


def _top(at: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for side, name in (("reference", "expected"), ("candidate", "got")):
        evidence = at.get(side)
        if isinstance(evidence, dict):
            rows.append({"side": name, **evidence})
    return rows


def aligned(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Diff blocks with long agreement folded: {op, reference, candidate, hidden}; none when nothing differs."""
    if not any(block["op"] != "equal" for block in blocks):
        return []
    found = []
    for number, block in enumerate(blocks):
        tokens = block["reference"]
        if block["op"] != "equal" or len(tokens) <= 2 * CONTEXT:
            found.append({**block, "hidden": 0})
            continue
        before = tokens[:CONTEXT] if number else []
        after = tokens[-CONTEXT:] if number < len(blocks) - 1 else []
        kept = {"op": "equal", "candidate": []}
        if before:
            found.append({**kept, "reference": before, "hidden": 0})
        found.append(
            {"op": "fold", "reference": [], "candidate": [], "hidden": len(tokens) - len(before) - len(after)}
        )
        if after:
            found.append({**kept, "reference": after, "hidden": 0})
    return found


def visible(text: str) -> Markup:
    """A token with its whitespace made visible, escaped."""
    marks = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}
    return Markup("").join(
        Markup("<i>{}</i>").format(marks[char]) if char in marks else char for char in text
    ) or Markup("<i>∅</i>")


def pretty(value: Any) -> str:
    """Evidence as indented JSON."""
    return json.dumps(value, indent=1, ensure_ascii=False, default=str)


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _figure(name: str, figure: dict[str, Any]) -> dict[str, Any]:
    scale = 1e6
    base = figure.get("base_ns")
    floor = figure.get("memory_floor_ns")
    unit = f"ms{figure['unit'].removeprefix('ns')}"
    rows = [("here", figure["ns"] / scale, "here")]
    if base:
        rows.append((str(figure.get("base", "base")), base / scale, "base"))
    if floor:
        rows.append(("memory limit", floor / scale, "floor-bar"))
    width = plots.WIDE if figure.get("token_ns") else plots.NARROW
    lines = [
        plots.Line("here", tuple(ns / scale for ns in figure.get("token_ns") or ()), "here"),
        plots.Line("base", tuple(ns / scale for ns in figure.get("base_token_ns") or ()), "base"),
    ]
    return {
        "name": name.replace("-", " "),
        "value": figure["ns"] / scale,
        "unit": unit,
        "ratio": figure["ns"] / base if base else None,
        "setting": ", ".join(
            str(part)
            for part in (figure.get("backend"), figure.get("dtype"), f"{figure.get('threads')} thread(s)")
            if part
        ),
        "note": _note(name, figure, floor),
        "bars": Markup(plots.bars(rows, "ms")),
        "line": Markup(
            plots.line_plot(lines, unit=unit, across="token", floor=floor / scale if floor else None)
        ),
        "strip": Markup(plots.ratio_strip(figure.get("pairs_ns") or [], figure.get("margin") or 0.0, width)),
    }


def _note(name: str, figure: dict[str, Any], floor: float | None) -> str:
    if floor:
        return (
            f"Reading {figure['weight_bytes'] / 1e6:,.0f} MB of weights once at "
            f"{figure['read_bytes_per_second'] / 1e9:.1f} GB/s, measured in the same run, takes "
            f"{floor / 1e6:.1f} ms: {floor / figure['ns']:.0%} of a token's time."
        )
    if name == "prefill" and figure.get("prefill_tokens"):
        pieces = figure.get("prefill_pieces") or []
        return f"A prompt of {figure['prefill_tokens']} tokens in pieces of {[b - a for a, b in pieces]}."
    return "From the request to the first text, prompt already tokens, nothing cached."
