"""`paritygate golden`: record, review, accept, reject and replay goldens, and say how they stand."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from paritygate import policy as policies
from paritygate.case import Case
from paritygate.command_line import BarOption, Root, at_a_desk, judged_by, policy_at, refused
from paritygate.console import Console
from paritygate.gates import golden as gate
from paritygate.golden.layers import REFERENCE, layer_of
from paritygate.golden.oracles import OracleError
from paritygate.golden.record import record
from paritygate.golden.review import review, show_pending
from paritygate.golden.store import Acceptance, GoldenError, NotWritten, Store
from paritygate.golden.survey import Survey, labelled, survey
from paritygate.policy import Claim, GoldenClaim, Policy
from paritygate.triage.settings import TriagePolicy
from paritygate.verdict import Check, Exit, Outcome, exit_code

app = typer.Typer(help="Record, review and replay goldens.", no_args_is_help=True)
console = Console()

Names = Annotated[list[str] | None, typer.Argument(help="Cases; all of them unless given.")]
Layer = Annotated[
    str,
    typer.Option(
        help="A machine key, or a glob over them; the layer in which a case is pending unless given."
    ),
]


def _refuse_without_goldens(policy: Policy) -> None:
    if "goldens" not in policy.tables:
        raise refused(f"{policies.POLICY_FILE} has no [goldens] table: add one that names their directory")


def _opened(root: Path) -> tuple[Policy, Store, tuple[Case, ...]]:
    policy = policy_at(root)
    _refuse_without_goldens(policy)
    return policy, Store(root / policy.goldens.directory), policy.golden_cases(root)


def _chosen(names: list[str] | None, cases: tuple[Case, ...]) -> list[Case]:
    known = {case.name: case for case in cases}
    for name in names or ():
        if name not in known:
            raise refused(f"no case is named {name!r}: there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(cases)


def _refused(error: GoldenError) -> typer.Exit:
    return refused(str(error), Exit.COULD_NOT_RUN if isinstance(error, NotWritten) else Exit.USAGE)


def _waiting(store: Store, names: list[str] | None, layer: str) -> list[tuple[str, str]]:
    """(layer, case) of what is pending, or of the names given."""
    try:
        only = layer_of(layer) if layer else None
        if names:
            found = [(store.waiting(name, only), name) for name in names]
        else:
            layers = store.layers() if only is None else (only,)
            found = [(one, name) for one in layers for name in store.names(pending=True, layer=one)]
    except GoldenError as error:
        raise _refused(error) from None
    if not found:
        raise refused("nothing is pending: record first")
    return found


def _each(waiting: list[tuple[str, str]], done: str, act: Callable[[str, str], Path]) -> None:
    for layer, name in waiting:
        try:
            console.print(f"{done} {act(layer, name)}", markup=False, highlight=False, soft_wrap=True)
        except GoldenError as error:
            raise _refused(error) from None


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@app.command("record")
def record_command(
    names: Names = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="The .gguf file or directory, where the policy has an alias.")
    ] = None,
    oracle: Annotated[
        list[str] | None, typer.Option(help="Only this oracle of the policy's; repeatable.")
    ] = None,
    layer: Annotated[
        str,
        typer.Option(help="A machine key or a glob that holds for this machine; every machine unless given."),
    ] = REFERENCE,
    root: Root = Path(),
) -> None:
    """Ask the oracles; what they agree on waits beside the accepted goldens. Takes minutes."""
    at_a_desk("record a golden")
    policy, store, cases = _opened(root)
    chosen = _chosen(names, cases)
    path = checkpoint or root / policy.checkpoint.location
    if not (path.is_file() or (path / "config.json").is_file()):
        raise refused(
            f"{path} is no .gguf file and no Hugging Face directory: say where the weights lie with --checkpoint PATH",
            Exit.USAGE,
        )
    try:
        results = record(
            policy, store, chosen, path.resolve(), lambda line: console.print(line, markup=False),
            layer=layer_of(layer), oracles=tuple(oracle or ()),
        )  # fmt: skip
    except GoldenError as error:
        raise _refused(error) from None
    except OracleError as error:
        raise refused(f"nothing was written: {error}", Exit.COULD_NOT_RUN) from None
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
    """Say which goldens are accepted, in which layer, and which are pending, missing, orphaned, stale or broken."""
    policy, store, _ = _opened(root)
    found = survey(policy, root)
    console.print(f"{len(found.accepted)} accepted, {found.tokens} tokens here; {len(found.pending)} pending")
    if len(found.layers) > 1 or not found.accepted:
        console.print(f"this machine is {found.machine}", markup=False, highlight=False, soft_wrap=True)
    for layer in found.layers:
        _show_layer(found, layer)
    for layer in store.layers():
        for name in store.names(pending=True, layer=layer):
            _show_pending(store, layer, name, policy.goldens.margin_floor)
    for fault in found.told():
        console.print(fault, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(Exit.GATE_FAILED if found.faults else Exit.PASS)


def _show_layer(found: Survey, layer: str) -> None:
    names = found.layers[layer]
    here = [name for name in names if found.resolved.get(name) == layer]
    line = f"  {layer}: {len(names)} accepted, {len(here)} of them hold here"
    if layer != REFERENCE and names:
        line += f" ({', '.join(names)})"
    elif len(here) < len(names):
        line += f" (overridden: {', '.join(name for name in names if name not in here)})"
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _show_pending(store: Store, layer: str, name: str, floor: float) -> None:
    try:
        pending = store.load(name, pending=True, layer=layer)
        there = store.path(name, layer=layer).is_file()
        accepted = store.load(name, layer=layer) if there else None
    except GoldenError as error:
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        return
    console.print(f"pending {labelled(layer, name)}", style="bold", markup=False, highlight=False)
    show_pending(console, pending, accepted, floor)


@app.command("review")
def review_command(names: Names = None, layer: Layer = "", root: Root = Path()) -> None:
    """Decide on pending goldens one after the other: accept, reject, skip, quit."""
    at_a_desk("accept or reject a golden")
    policy, store, _ = _opened(root)
    waiting = _waiting(store, names, layer)
    try:
        told = review(store, waiting, console, today=_today(), floor=policy.goldens.margin_floor)
    except GoldenError as error:
        raise _refused(error) from None
    except KeyboardInterrupt:
        raise refused("interrupted: what was not decided is still pending", Exit.INCONCLUSIVE) from None
    console.print(
        f"{len(told.accepted)} accepted, {len(told.rejected)} rejected, {len(told.left)} still pending",
        highlight=False,
    )


@app.command()
def accept(
    reason: Annotated[str, typer.Option(help="Why these are right.")],
    names: Names = None,
    layer: Layer = "",
    root: Root = Path(),
) -> None:
    """Make pending goldens the accepted ones of their layer."""
    at_a_desk("accept a golden")
    _, store, _ = _opened(root)
    acceptance = Acceptance(date=_today(), reason=reason)
    _each(_waiting(store, names, layer), "accepted", lambda one, name: store.accept(name, acceptance, one))


@app.command()
def reject(
    names: Annotated[list[str], typer.Argument(help="Pending cases.")],
    layer: Layer = "",
    root: Root = Path(),
) -> None:
    """Remove pending goldens; what is accepted stays."""
    at_a_desk("reject a golden")
    _, store, _ = _opened(root)
    _each(_waiting(store, names, layer), "rejected", lambda one, name: store.reject(name, one))


def _asked_again(policy: Policy, cases: tuple[str, ...], arms: tuple[str, ...]) -> dict[str, Claim]:
    """The golden claims as far as they are about these cases and arms (all of theirs where none is named). What is
    named and no claim holds is replayed all the same, as a claim that everything is identical."""
    held: dict[str, Claim] = {}
    covered: set[tuple[str, str]] = set()
    for name, claim in policy.claims.items():
        if isinstance(claim, GoldenClaim):
            own = tuple(case for case in cases if case in (claim.cases or cases))
            on = tuple(arm for arm in claim.arms if arm in (arms or claim.arms))
            covered |= {(arm, case) for arm in on for case in own}
            if own and on:
                held[name] = msgspec.structs.replace(claim, cases=own, arms=on)
    for arm in arms:
        if left := tuple(case for case in cases if (arm, case) not in covered):
            held[f"replay of {arm}"] = GoldenClaim(arms=(arm,), cases=left)
    return held


@app.command()
def replay(
    names: Names = None,
    arm: Annotated[
        list[str] | None, typer.Option(help="Arms; those of the golden claims unless given.")
    ] = None,
    root: Root = Path(),
    bar: BarOption = "",
) -> None:
    """Ask arms what the goldens say, and compare."""
    with judged_by(root, bar) as (policy, _):
        _refuse_without_goldens(policy)
        chosen = tuple(case.name for case in _chosen(names, policy.golden_cases(root)))
        unknown = [name for name in arm or () if name not in policy.arms]
        if unknown:
            raise refused(f"no arm is named {unknown[0]!r}: there are {', '.join(policy.arms)}")
        claims = _asked_again(policy, chosen, tuple(arm or ()))
        narrowed = msgspec.structs.replace(policy, claims=claims, triage=TriagePolicy(checks=0))
        checks: list[Check] = []
        for check in gate.run(narrowed, root, lambda line: None):
            checks.append(check)
            style = "green" if check.outcome is Outcome.PASS else "red"
            console.print(f"[{style}]{check.verdict:15}[/] {check.name}: ", end="", highlight=False)
            console.print(check.headline, markup=False, highlight=False)
    raise typer.Exit(exit_code(checks))
