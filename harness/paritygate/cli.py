"""`paritygate`: verify what a policy promises, and look after what that needs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from paritygate import policy as policies
from paritygate import report
from paritygate.bench import cli as bench
from paritygate.bisect.cli import bisect
from paritygate.command_line import BarOption, Root, judged_by, policy_at, refused
from paritygate.conformance.cli import conformance_command
from paritygate.console import Console
from paritygate.explain import NoEvidence, find, show
from paritygate.faults.cli import faults
from paritygate.gates.merge import MergeError, join
from paritygate.gates.run import GATES, TIERS, applicable
from paritygate.gates.run import verify as run_gates
from paritygate.gates.shard import Shard, ShardError
from paritygate.golden import cli as golden
from paritygate.init.cli import init_command
from paritygate.interruption import Interruption
from paritygate.policy.bar import sentence as bar_sentence
from paritygate.replay_cli import replay
from paritygate.run import Run, RunError
from paritygate.schema import SCHEMAS, schema_text
from paritygate.structure import cli as structure
from paritygate.verdict import Check, Exit, Outcome

STYLES = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.COULD_NOT_RUN: "magenta",
}

app = typer.Typer(help="Does every path still say the same thing, as fast as before?", no_args_is_help=True)
app.add_typer(golden.app, name="golden")
app.add_typer(structure.app, name="structure")
app.add_typer(bench.app, name="bench")
app.command("faults")(faults)
app.command("conformance")(conformance_command)
app.command("init")(init_command)
app.command()(replay)
app.command()(bisect)

console = Console()


def _chosen(only: list[str], leave_out: list[str], tier: str, policy: policies.Policy) -> tuple[str, ...]:
    if tier not in TIERS:
        raise refused(f"no tier {tier!r}: there are {', '.join(TIERS)}")
    for gate in (*only, *leave_out):
        if gate not in GATES:
            raise refused(f"no gate {gate!r}: there are {', '.join(GATES)}")
    chosen = tuple(gate for gate in GATES if gate in only) if only else applicable(policy, tier)
    return tuple(gate for gate in chosen if gate not in leave_out)


@app.command()
def verify(
    tier: Annotated[str, typer.Option(help="fast leaves out what measures time; real the members.")] = "real",
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this gate ({', '.join(GATES)}); repeatable.")
    ] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option("--leave-out", help="Not this gate; repeatable.")
    ] = None,
    report_to: Annotated[
        Path | None, typer.Option("--report", help="Where to leave report.json, junit.xml and index.html.")
    ] = None,
    root: Root = Path(),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run everything, also what has not changed.")
    ] = False,
    shard: Annotated[str, typer.Option(help="Only share i of n of the work, as i/n; then `merge`.")] = "",
    bar: BarOption = "",
) -> None:
    """Run the gates. Exit: 0 pass, 1 a gate failed, 2 usage, 3 could not run, 4 inconclusive."""
    with judged_by(root, bar) as (policy, held), Interruption(_leaving) as interruption:
        chosen = _chosen(only or [], leave_out or [], tier, policy)

        notes = () if held is None else (bar_sentence(held),)

        def save(run: Run) -> None:
            if report_to is not None:
                _write(run, report_to)

        try:
            run = _verified(policy, root, chosen, tier, fresh, shard, notes, interruption, save)
        except KeyboardInterrupt:
            raise refused("interrupted before the first gate", Exit.INCONCLUSIVE) from None
        interruption.keep(lambda: save(run))
        report.print_table(run, console)
    raise typer.Exit(run.exit)


def _leaving() -> None:
    console.show_cursor(True)
    refused("interrupted twice: ended at once, with what was found until then")


def _write(run: Run, directory: Path) -> None:
    try:
        report.write(run, directory)
    except OSError as error:
        raise refused(
            f"{directory}: the report was not written: {error.strerror}", Exit.COULD_NOT_RUN
        ) from None


def _verified(
    policy: policies.Policy,
    root: Path,
    gates: tuple[str, ...],
    tier: str,
    fresh: bool,
    shard: str,
    notes: tuple[str, ...],
    interruption: Interruption,
    save: Callable[[Run], None],
) -> Run:
    said: list[str] = []
    with console.status("starting") as status:

        def on_check(check: Check) -> None:
            if check.gate not in said:
                said.append(check.gate)
                console.rule(check.gate, style="dim")
            style = STYLES[check.outcome]
            console.print(
                f"[{style}]{check.verdict:15}[/] {check.name}  ", end="", highlight=False, soft_wrap=True
            )
            console.print(check.headline, style="dim", markup=False, highlight=False, soft_wrap=True)

        try:
            share = Shard.parse(shard) if shard else None
            return run_gates(
                policy,
                root,
                gates,
                tier=tier,
                progress=status.update,
                on_check=on_check,
                fresh=fresh,
                shard=share,
                notes=notes,
                interruption=interruption,
                save=save,
            )
        except ShardError as error:
            raise refused(str(error)) from None


@app.command()
def merge(
    shards: Annotated[
        list[Path], typer.Argument(help="The report of each shard: its directory or report.json.")
    ],
    report_to: Annotated[Path, typer.Option("--report", help="Where to leave the joined report.")],
    root: Annotated[
        Path, typer.Option(help="The repository under test, for its waivers.", file_okay=False, exists=True)
    ] = Path(),
) -> None:
    """Join the shards of one run; waivers and the exit code are those of the whole."""
    try:
        run = join(shards, policy_at(root), root)
    except (RunError, MergeError) as error:
        raise refused(str(error)) from None
    _write(run, report_to)
    report.print_table(run, console)
    raise typer.Exit(run.exit)


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(help="A report's directory, or its report.json.")],
    case: Annotated[str, typer.Argument(help="A check's name, or part of it.")],
) -> None:
    """Print the evidence of a check: both tokens, both top-2, the aligned diff, what the arm printed."""
    try:
        found = find(run, case)
    except NoEvidence as error:
        raise refused(str(error)) from None
    for check in found:
        show(console, check)


@app.command()
def schema(
    of: Annotated[str, typer.Argument(help=f"Of what: {', '.join(SCHEMAS)}.")],
) -> None:
    """Print the JSON Schema of a file that paritygate reads or writes."""
    if of not in SCHEMAS:
        raise refused(f"no schema {of!r}: there are {', '.join(SCHEMAS)}")
    print(schema_text(of), end="")


def main() -> None:
    try:
        app()
    finally:
        # All that is left is to end: a key pressed now must not become a traceback, or another exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
