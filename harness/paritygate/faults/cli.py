"""`paritygate faults`: plant every known defect, one at a time, and say which gate catches it."""

from __future__ import annotations

import datetime
import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from paritygate import policy as policies
from paritygate import revision
from paritygate.command_line import Root, policy_at, refused
from paritygate.console import Console
from paritygate.faults.catalogue import Fault
from paritygate.faults.markdown import markdown
from paritygate.faults.matrix import document, fault_of, faults_of, trial_json, trials
from paritygate.faults.trial import Trial
from paritygate.interruption import Interruption
from paritygate.machine import this_machine
from paritygate.policy.catalogue import load_catalogue
from paritygate.report.faults_page import faults_page
from paritygate.scratch import remove_orphans
from paritygate.verdict import Exit

console = Console()
STYLES = {"caught": "green", "survived": "red", "dead": "magenta", "not applicable": "dim"}


def _chosen(every: tuple[Fault, ...], only: list[str]) -> tuple[Fault, ...]:
    known = {fault.id: fault for fault in every}
    for name in only:
        if name not in known:
            raise refused(f"no fault is called {name!r}: there are {', '.join(known)}")
    return tuple(known[name] for name in only) if only else every


def _say(trial: Trial) -> None:
    name = trial.fault.id if trial.fault else "clean"
    seen = f"{', '.join(trial.gates)} after {trial.first_red:.0f} s" if trial.first_red is not None else ""
    console.print(f"[{STYLES[trial.state]}]{trial.state:15}[/] {name:24} {seen}", highlight=False)
    sentence = fault_of(trial) or (trial.named_by.headline if trial.named_by else trial.note)
    if sentence:
        console.print(f"    {sentence}", style="dim", markup=False, highlight=False, soft_wrap=True)


def faults(
    only: Annotated[list[str] | None, typer.Argument(help="Faults; all of them unless given.")] = None,
    clean: Annotated[
        int, typer.Option(help="Repeats of the clean engine, which must stay green.", min=0)
    ] = 1,
    list_only: Annotated[bool, typer.Option("--list", help="Say what would be planted.")] = False,
    report: Annotated[Path | None, typer.Option(help="Where to leave faults.json and faults.html.")] = None,
    to_markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write the matrix as a page of documentation.")
    ] = None,
    root: Root = Path(),
) -> None:
    """Plant known defects one at a time, in a copy, and show which gate goes red and whether it names them.

    Exit: 0 every fault is caught, or explained; 1 one is not, or the clean engine is red; 2 usage; 4 interrupted.
    """
    remove_orphans(Path(tempfile.gettempdir()).resolve())
    policy = policy_at(root)
    try:
        every = load_catalogue(root, policy.faults.catalogue)
    except policies.PolicyError as error:
        raise refused(str(error)) from None
    chosen = _chosen(every, only or [])
    if list_only:
        for fault in chosen:
            what = fault.not_applicable and f"not applicable: {fault.not_applicable}"
            console.print(
                f"{fault.id:24} {what or fault.defect}", markup=False, highlight=False, soft_wrap=True
            )
        return
    started, machine = datetime.datetime.now(datetime.UTC), this_machine()
    found: list[Trial] = []
    commit = revision.told(root, "rev-parse", "--short", "HEAD")
    interrupted = False

    def matrix() -> dict[str, Any]:
        return document(
            [trial_json(trial) for trial in found],
            commit=commit,
            started=started.isoformat(timespec="seconds"),
            machine=f"{machine.processor}, {machine.cores} cores",
        )

    # Told to end, it stops the gates that it started, and says what it found until then.
    with Interruption(_leaving) as interruption:
        with console.status("starting") as status:
            try:
                for trial in trials(root, policy, (*[None] * clean, *chosen), status.update):
                    found.append(trial)
                    _say(trial)
                interruption.heed_no_more()
            except KeyboardInterrupt:
                interrupted = True
        interruption.keep(lambda: _leave(matrix(), report, to_markdown))
    _sum_up(matrix(), faults_of(found))
    if interrupted:
        raise typer.Exit(Exit.INCONCLUSIVE)
    raise typer.Exit(Exit.GATE_FAILED if faults_of(found) else Exit.PASS)


def _leaving() -> None:
    console.show_cursor(True)


def _sum_up(matrix: dict[str, Any], faults: list[str]) -> None:
    console.print(
        f"\n{matrix['caught']} of {matrix['tried']} planted faults caught, {matrix['named']} of them named; "
        f"{matrix['not_applicable']} not applicable; clean engine: {matrix['clean_runs']} runs, "
        f"{matrix['clean_red']} red",
        highlight=False,
    )
    for sentence in faults:
        console.print(sentence, style="red", markup=False, highlight=False, soft_wrap=True)


def _leave(matrix: dict[str, Any], report: Path | None, to_markdown: Path | None) -> None:
    if report is not None:
        report.mkdir(parents=True, exist_ok=True)
        told = json.dumps(matrix, indent=1, ensure_ascii=False)
        (report / "faults.json").write_text(told, encoding="utf-8")
        (report / "faults.html").write_text(faults_page(matrix), encoding="utf-8")
    if to_markdown is not None:
        to_markdown.write_text(markdown(matrix), encoding="utf-8")
