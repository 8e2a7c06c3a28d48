"""`paritygate structure`: the rules over this tree, or what the call graph cannot follow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paritygate import policy as policies
from paritygate.structure.callgraph import CallGraph
from paritygate.structure.gate import check
from paritygate.structure.source import SourceError, Tree
from paritygate.verdict import Exit, Outcome, exit_code

app = typer.Typer(help="Rules over source code.", invoke_without_command=True, no_args_is_help=False)

Root = Annotated[Path, typer.Option(help="The repository under test.", file_okay=False, exists=True)]


def _policy(root: Path) -> policies.Policy:
    try:
        return policies.load(root)
    except policies.PolicyError as error:
        Console(stderr=True).print(str(error), markup=False, highlight=False)
        raise typer.Exit(Exit.USAGE) from None


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
    policy = _policy(root)
    chosen = tuple(rule for rule in policy.structure.rules if only in rule.name)
    if only and not chosen:
        Console(stderr=True).print(f"no structure rule's name holds {only!r}", markup=False)
        raise typer.Exit(Exit.USAGE)
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
    raise typer.Exit(exit_code(checks))


@app.command()
def unresolved(
    root: Root = Path(),
    under: Annotated[str, typer.Option(help="Only files whose path starts with this.")] = "engine/",
) -> None:
    """List the calls that no name leads to: tables, values, strings. Rules cannot see through them."""
    console = Console()
    policy = _policy(root)
    try:
        graph = CallGraph(Tree.read(root, policy.structure))
    except SourceError as error:
        Console(stderr=True).print(str(error), markup=False)
        raise typer.Exit(Exit.COULD_NOT_RUN) from None
    for use in sorted(graph.dynamic(), key=lambda use: (use.path, use.line)):
        if use.path.startswith(under):
            where = f"{use.path}:{use.line} {use.caller} calls {use.target}"
            console.print(where, markup=False, highlight=False, soft_wrap=True)
