"""A run in the terminal: a line for each gate, what did not pass in full, the verdict last."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from paritygate.console import Console
from paritygate.report.headline import ORDER, WORDS, advice, by_gate, counts, headline, recalled, worst_first
from paritygate.run import Run
from paritygate.shown import shown
from paritygate.verdict import Exit, Outcome

STYLES = {
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.COULD_NOT_RUN: "magenta",
}
SHOWN = 12


def print_table(run: Run, console: Console) -> None:
    """Print it; every line stands without colour too."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("gate")
    for outcome in ORDER[::-1]:
        table.add_column(str(outcome), justify="right")
    table.add_column("time", justify="right")
    table.add_column("", overflow="fold")
    for gate, checks in by_gate(run.checks).items():
        tally = counts(checks)
        worst = next(outcome for outcome in ORDER if tally[outcome])
        cells = [
            Text(str(tally[outcome] or "-"), style=STYLES[outcome] if tally[outcome] else "dim")
            for outcome in ORDER[::-1]
        ]
        seconds = f"{sum(check.seconds for check in checks):.1f} s"
        table.add_row(
            Text(gate, style="bold"), *cells, seconds, Text(_summary(gate, run, worst), style="dim")
        )
    console.print()
    console.print(table)
    wrong = worst_first(run.checks)
    for check in wrong[:SHOWN]:
        console.print()
        console.print(Text(shown(f"{check.verdict} {check.name}"), style=f"bold {STYLES[check.outcome]}"))
        console.print(Text(shown(f"  {check.headline}")))
    if len(wrong) > SHOWN:
        console.print(f"\n  and {len(wrong) - SHOWN} more, all in the report")
    lines = recalled(run)
    if lines:
        console.print()
    for line in lines:
        console.print(Text(line, style="dim"))
    if run.reused:
        console.print(Text("--fresh runs everything again", style="dim"))
    colour = "green" if run.exit is Exit.PASS else "yellow" if run.exit is Exit.INCONCLUSIVE else "red"
    console.print()
    console.print(Text(f"{WORDS[run.exit].upper()}  {shown(headline(run))}", style=f"bold {colour}"))
    console.print(Text(advice(run), style="dim"))


def _summary(gate: str, run: Run, worst: Outcome) -> str:
    if gate == "bench":
        parts = []
        for name, figure in run.figures.items():
            if isinstance(figure, dict) and "ns" in figure:
                base = figure.get("base_ns")
                ratio = f" ({figure['ns'] / base:.3f} of base)" if base else ""
                parts.append(f"{name} {figure['ns'] / 1e6:.2f} ms{ratio}")
        return ", ".join(parts)
    again = sum(check.gate == gate and "reused" in check.details for check in run.checks)
    parts = [f"{again} reused"] if again else []
    return ", ".join(parts if worst is Outcome.PASS else [*parts, str(worst)])
