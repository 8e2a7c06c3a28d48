"""`paritygate structure`: the rules over this tree, or what the call graph cannot follow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paritygate.command_line import Root, at_a_desk, policy_at, refused
from paritygate.console import Console
from paritygate.structure import baseline
from paritygate.structure.callgraph import CallGraph
from paritygate.structure.gate import Source, check, evaluate
from paritygate.structure.source import SourceError, Tree
from paritygate.verdict import Exit, Outcome, exit_code

app = typer.Typer(help="Rules over source code.", invoke_without_command=True, no_args_is_help=False)


@app.callback()
def rules(
    context: typer.Context,
    root: Root = Path(),
    only: Annotated[str, typer.Option(help="Only rules whose name holds this text.")] = "",
) -> None:
    """Check every rule, and that each catches the violation planted for it."""
    if context.invoked_subcommand:
        return
    console = Console()
    policy = policy_at(root)
    chosen = tuple(rule for rule in policy.structure.rules if only in rule.name)
    if only and not chosen:
        raise refused(f"no structure rule's name holds {only!r}")
    checks = []
    structure = type(policy.structure)(policy.structure.roots, policy.structure.exclude, chosen)
    for result in check(structure, root, lambda line: console.print(line, style="dim", markup=False)):
        checks.append(result)
        style = "green" if result.outcome is Outcome.PASS else "red"
        console.print(f"[{style}]{result.verdict:8}[/] [bold]{result.name.partition('/')[2]}[/]")
        console.print(f"         {result.headline}", markup=False, highlight=False)
        for hit in result.details.get("violations", ())[1:]:
            console.print(
                f"         {hit['path']}:{hit['line']} {hit['what']}", markup=False, highlight=False
            )
        for reason in result.details.get("dead", ()):
            if reason not in result.headline:
                console.print(f"         {reason}", markup=False, highlight=False)
    raise typer.Exit(exit_code(checks))


@app.command()
def freeze(
    rule: Annotated[str, typer.Argument(help="The rule's name; it has a `baseline`.")],
    root: Root = Path(),
    grow: Annotated[bool, typer.Option("--grow", help="Also freeze violations that are new.")] = False,
    reason: Annotated[str, typer.Option(help="Why they are let in.")] = "",
) -> None:
    """Write a rule's baseline: what is gone leaves it. What is new enters a baseline only with --grow --reason."""
    at_a_desk("freeze violations")
    structure = policy_at(root).structure
    found = next((item for item in structure.rules if item.name == rule), None)
    if found is None or not found.baseline:
        why = "has no `baseline`" if found else "is not there"
        raise refused(f"structure rule {rule!r} {why}")
    try:
        tree = Tree.read(root, structure)
        path = root / found.baseline
        old = baseline.read(path.read_text(encoding="utf-8"), at=found.baseline) if path.exists() else None
        violations = evaluate(found, Source(tree)).violations
        lines = baseline.refrozen(violations, old, tree, grow=grow, reason=reason)
        if lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.writing")
            unfinished.write_text(baseline.write(lines), encoding="utf-8")
            unfinished.replace(path)
        else:
            path.unlink(missing_ok=True)
    except baseline.BaselineError as error:
        raise refused(str(error)) from None
    except (SourceError, OSError) as error:
        raise refused(str(error), Exit.COULD_NOT_RUN) from None
    before = "none" if old is None else str(len(old))
    done = f"{found.baseline}: {len(lines)} frozen violations (before: {before})"
    if not lines:
        done = f"nothing is frozen any more: {found.baseline} is gone, take `baseline` out of the rule"
    Console().print(done, markup=False, highlight=False, soft_wrap=True)


@app.command()
def unresolved(
    root: Root = Path(),
    under: Annotated[str, typer.Option(help="Only files whose path starts with this.")] = "engine/",
) -> None:
    """List the calls that no name leads to: tables, values, strings. Rules cannot see through them."""
    console = Console()
    policy = policy_at(root)
    try:
        graph = CallGraph(Tree.read(root, policy.structure))
    except SourceError as error:
        raise refused(str(error), Exit.COULD_NOT_RUN) from None
    for use in sorted(graph.dynamic(), key=lambda use: (use.path, use.line)):
        if use.path.startswith(under):
            where = f"{use.path}:{use.line} {use.caller} calls {use.target}"
            console.print(where, markup=False, highlight=False, soft_wrap=True)
