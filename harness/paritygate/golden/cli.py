"""`paritygate golden`: record, accept and replay goldens, and say how they stand."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from paritygate import policy as policies
from paritygate.case import Case
from paritygate.gates import golden as gate
from paritygate.golden.oracles import OracleError
from paritygate.golden.record import record
from paritygate.golden.store import Acceptance, Golden, GoldenError, Store
from paritygate.golden.survey import survey
from paritygate.policy import GoldenClaim, Policy
from paritygate.verdict import Check, Exit, Outcome, exit_code

app = typer.Typer(help="Record, accept and replay goldens.", no_args_is_help=True)
console = Console()
errors = Console(stderr=True)

Root = Annotated[Path, typer.Option(help="The repository under test.", file_okay=False, exists=True)]
Names = Annotated[list[str] | None, typer.Argument(help="Cases; all of them unless given.")]


def _stop(what: str, code: Exit) -> typer.Exit:
    errors.print(what, markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(code)


def _opened(root: Path) -> tuple[Policy, Store, tuple[Case, ...]]:
    try:
        policy = policies.load(root)
    except policies.PolicyError as error:
        raise _stop(str(error), Exit.USAGE) from None
    if "goldens" not in policy.tables:
        raise _stop(
            f"{policies.POLICY_FILE} has no [goldens] table: add one that names their directory", Exit.USAGE
        )
    return policy, Store(root / policy.goldens.directory), policy.golden_cases(root)


def _chosen(names: list[str] | None, cases: tuple[Case, ...]) -> list[Case]:
    known = {case.name: case for case in cases}
    for name in names or ():
        if name not in known:
            raise _stop(f"no case is named {name!r}: there are {', '.join(known)}", Exit.USAGE)
    return [known[name] for name in names] if names else list(cases)


@app.command("record")
def record_command(
    names: Names = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="The .gguf file or directory, where the policy has an alias.")
    ] = None,
    root: Root = Path(),
) -> None:
    """Ask the oracles; what they agree on waits beside the accepted goldens. Takes minutes."""
    policy, store, cases = _opened(root)
    path = checkpoint or root / policy.checkpoint.location
    if not (path.is_file() or (path / "config.json").is_file()):
        raise _stop(
            f"{path} is no .gguf file and no Hugging Face directory: say where the weights lie with --checkpoint PATH",
            Exit.USAGE,
        )
    try:
        results = record(
            policy, store, _chosen(names, cases), path.resolve(), lambda line: console.print(line)
        )
    except GoldenError as error:
        raise _stop(str(error), Exit.USAGE) from None
    except OracleError as error:
        raise _stop(f"nothing was written: {error}", Exit.COULD_NOT_RUN) from None
    for result in results:
        if result.path is None:
            console.print(f"[yellow]not admitted[/] {result.case}: {result.why_not}", highlight=False)
        else:
            console.print(
                f"[green]pending[/] {result.case}: {result.tokens} tokens, smallest margin {result.min_margin:.4f} "
                f"logits, oracles within {result.max_difference:.1g}",
                highlight=False,
            )
    if all(result.path is None for result in results):
        raise typer.Exit(Exit.GATE_FAILED)


@app.command()
def status(root: Root = Path()) -> None:
    """Say which goldens are accepted, pending, missing, orphaned, stale, broken or never replayed."""
    policy, store, _ = _opened(root)
    found = survey(policy, root)
    console.print(f"{len(found.accepted)} accepted, {found.tokens} tokens; {len(found.pending)} pending")
    for name in found.pending:
        _show_pending(store, name)
    for fault in found.faults:
        console.print(fault, style="red", markup=False, highlight=False)
    raise typer.Exit(Exit.GATE_FAILED if found.faults else Exit.PASS)


def _provenance(golden: Golden) -> str:
    runs = ", ".join(f"{run.oracle} {run.dtype}, {run.threads} thread(s)" for run in golden.provenance.runs)
    return f"{runs}; smallest margin {golden.min_margin:.4f}"


def _show_pending(store: Store, name: str) -> None:
    try:
        pending = store.load(name, pending=True)
        accepted = store.load(name) if name in store.names() else None
    except GoldenError as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        return
    console.print(
        f"[bold]{name}[/] ({len(pending.token_ids)} tokens; {_provenance(pending)})", highlight=False
    )
    if accepted is None:
        console.print(f"  new: {pending.text!r}", markup=False, highlight=False)
    elif accepted.text != pending.text or accepted.token_ids != pending.token_ids:
        console.print(f"  - {accepted.text!r}", style="red", markup=False, highlight=False)
        console.print(f"  + {pending.text!r}", style="green", markup=False, highlight=False)
    elif accepted.provenance != pending.provenance:
        console.print("  the same tokens; the provenance differs:", highlight=False)
        before, after = (msgspec.to_builtins(golden.provenance) for golden in (accepted, pending))
        for key in after:
            if before[key] != after[key]:
                console.print(f"  {key}: {before[key]} -> {after[key]}", markup=False, highlight=False)


@app.command()
def accept(
    reason: Annotated[str, typer.Option(help="Why these are right.")],
    names: Names = None,
    root: Root = Path(),
) -> None:
    """Make pending goldens the accepted ones."""
    _, store, _ = _opened(root)
    waiting = store.names(pending=True)
    chosen = names or list(waiting)
    if not chosen:
        raise _stop("nothing is pending: record first", Exit.USAGE)
    acceptance = Acceptance(date=datetime.datetime.now(datetime.UTC).date().isoformat(), reason=reason)
    for name in chosen:
        try:
            console.print(f"accepted {store.accept(name, acceptance)}", highlight=False)
        except GoldenError as error:
            raise _stop(str(error), Exit.USAGE) from None


@app.command()
def replay(
    names: Names = None,
    arm: Annotated[
        list[str] | None, typer.Option(help="Arms; those of the golden claims unless given.")
    ] = None,
    root: Root = Path(),
) -> None:
    """Ask arms what the goldens say, and compare."""
    policy, _, cases = _opened(root)
    chosen = tuple(case.name for case in _chosen(names, cases))
    unknown = [name for name in arm or () if name not in policy.arms]
    if unknown:
        raise _stop(f"no arm is named {unknown[0]!r}: there are {', '.join(policy.arms)}", Exit.USAGE)
    claims = {
        name: msgspec.structs.replace(claim, cases=chosen, arms=tuple(arm or claim.arms))
        for name, claim in policy.claims.items()
        if isinstance(claim, GoldenClaim)
    }
    narrowed = msgspec.structs.replace(policy, claims=claims)
    checks: list[Check] = []
    for check in gate.replays(narrowed, root, lambda line: None):
        checks.append(check)
        style = "green" if check.outcome is Outcome.PASS else "red"
        console.print(f"[{style}]{check.verdict:15}[/] {check.name}: ", end="", highlight=False)
        console.print(check.headline, markup=False, highlight=False)
    raise typer.Exit(exit_code(checks))
