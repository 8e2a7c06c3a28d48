"""What every command does alike: refuse in one line, and read the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paritygate import policy as policies
from paritygate.console import Console
from paritygate.policy import Policy, PolicyError
from paritygate.verdict import Exit

Root = Annotated[Path, typer.Option(help="The repository under test.", file_okay=False, exists=True)]


def refused(what: str, code: Exit = Exit.USAGE) -> typer.Exit:
    """Say, on stderr and in one line however narrow the terminal is, what is wrong; raise what is returned."""
    Console(stderr=True).print(what, markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(code)


def policy_at(root: Path) -> Policy:
    """The policy of a repository; a broken one is refused with file, line and key."""
    try:
        return policies.load(root)
    except PolicyError as error:
        raise refused(str(error)) from None
