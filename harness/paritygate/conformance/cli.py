"""`paritygate conformance`: every check of an adapter, a line each."""

from __future__ import annotations

import tomllib
from typing import Annotated, Any

import typer

from paritygate.arms.base import ArmError
from paritygate.command_line import refused
from paritygate.conformance.suite import CHECKS, conformance
from paritygate.console import Console
from paritygate.verdict import Exit

console = Console()


def read_options(given: list[str]) -> dict[str, Any]:
    """`key=value` as paritygate.toml would hold it; a value that is no TOML is a text. Raises ValueError."""
    options = {}
    for entry in given:
        key, equals, value = entry.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"--option {entry}: is not key=value")
        try:
            options[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            options[key.strip()] = value
    return options


def conformance_command(
    kind: Annotated[str, typer.Argument(help="The arm's kind: the name of its entry point.")],
    model: Annotated[str, typer.Option(help="MODEL, as the arm is given it.")],
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the arm, key=value; repeatable.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this check; repeatable.")] = None,
) -> None:
    """Check that an adapter keeps the protocol of arms. Exit: 0 it does, 1 it does not, 3 the engine cannot be run."""
    for name in only or ():
        if name not in CHECKS:
            raise refused(f"no check {name!r}: there are {', '.join(CHECKS)}")
    findings = []
    try:
        options = read_options(option or [])
        for found in conformance(kind, options, model=model, only=tuple(only or ())):
            findings.append(found)
            console.print("[green]held  [/]" if found.held else "[bold red]broken[/]", end=" ")
            console.print(f"{found.check:13} {found.what}", markup=False, highlight=False, soft_wrap=True)
    except (ArmError, ValueError) as error:
        raise refused(str(error)) from None
    broken = [found for found in findings if not found.held]
    console.print(f"{len(findings) - len(broken)} of {len(findings)} checks held", highlight=False)
    if broken and all(found.setup for found in broken):
        raise typer.Exit(Exit.COULD_NOT_RUN)
    raise typer.Exit(Exit.GATE_FAILED if broken else Exit.PASS)
