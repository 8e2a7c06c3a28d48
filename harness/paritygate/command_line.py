"""What every command does alike: refuse in one line, and read the policy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from paritygate import policy as policies
from paritygate.console import Console
from paritygate.golden.store import GoldenError, refuse_under_ci
from paritygate.policy import Policy, PolicyError
from paritygate.policy.bar import Bar, bar_of
from paritygate.verdict import Exit

Root = Annotated[Path, typer.Option(help="The repository under test.", file_okay=False, exists=True)]

BarOption = Annotated[
    str,
    typer.Option("--bar", help="A commit whose policy and goldens the change is held to, not its own."),
]


def refused(what: str, code: Exit = Exit.USAGE) -> typer.Exit:
    """Say, on stderr and in one line however narrow the terminal is, what is wrong; raise what is returned."""
    Console(stderr=True).print(what, markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(code)


def at_a_desk(what: str, otherwise: str = "") -> None:
    """Refuse what CI must not do before anything is asked; `otherwise` says how it may be done there."""
    try:
        refuse_under_ci(what)
    except GoldenError as error:
        raise refused(f"{error}{otherwise}") from None


def policy_at(root: Path) -> Policy:
    """The policy of a repository; a broken one is refused with file, line and key."""
    try:
        return policies.load(root)
    except PolicyError as error:
        raise refused(str(error)) from None


@contextmanager
def judged_by(root: Path, bar: str) -> Iterator[tuple[Policy, Bar | None]]:
    """The policy that a repository is held to, while inside: its own, or that of the commit `bar`."""
    policy = policy_at(root)
    if not bar:
        yield policy, None
        return
    # Only what finding the bar raises is refused here, not what is done under it.
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(bar_of(root, bar, policy))
        except PolicyError as error:
            raise refused(str(error)) from None
        yield held.policy, held
