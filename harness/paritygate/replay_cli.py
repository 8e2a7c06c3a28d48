"""`paritygate replay`: the commands that a report gives to see a divergence again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from paritygate import policy as policies
from paritygate.command_line import BarOption, Root, judged_by, refused
from paritygate.console import Console
from paritygate.explain import show
from paritygate.replay import NoSuchCheck, check_again, two_arms
from paritygate.verdict import Check, Exit, exit_code


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise refused(f"--token-ids {text!r} is not a list of token ids: write it like 1,2,3") from None


def replay(
    name: Annotated[str, typer.Argument(help="A check as verify printed it; with two --arm, a case.")],
    arm: Annotated[list[str] | None, typer.Option(help="Twice: the reference, then the other arm.")] = None,
    token_ids: Annotated[str, typer.Option(help="The prompt as ids instead: 1,2,3.")] = "",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Instead of the case's own bound.")] = None,
    triage: Annotated[bool, typer.Option("--triage", help="Look into a divergence as verify does.")] = False,
    root: Root = Path(),
    bar: BarOption = "",
) -> None:
    """Run one check again, or one prompt on two arms, and print the evidence. Exit codes as verify."""
    console, ids = Console(), _ids(token_ids)
    with judged_by(root, bar) as (policy, _):
        try:
            if arm:
                checks = [_on_two_arms(policy, root, name, arm, ids, max_tokens)]
            else:
                again = check_again(
                    policy, root, name, lambda line: None, token_ids=ids, max_tokens=max_tokens, triage=triage
                )
                checks = list(again)
        except NoSuchCheck as error:
            raise refused(str(error)) from None
    for check in checks:
        show(console, msgspec.to_builtins(check))
    if not checks:
        raise refused(f"no check named {name!r} came of it", Exit.COULD_NOT_RUN)
    raise typer.Exit(exit_code(checks))


def _on_two_arms(
    policy: policies.Policy,
    root: Path,
    name: str,
    arms: list[str],
    token_ids: tuple[int, ...],
    max_tokens: int | None,
) -> Check:
    if len(arms) != 2:
        raise NoSuchCheck(f"{len(arms)} arm(s) are named: name two, the reference first")
    for arm in arms:
        if arm not in policy.arms:
            raise NoSuchCheck(f"no arm is named {arm!r}: there are {', '.join(policy.arms)}")
    cases = policy.all_cases(root)
    if name not in cases:
        raise NoSuchCheck(f"no case is named {name!r}: there are {', '.join(cases)}")
    return two_arms(policy, cases[name], (arms[0], arms[1]), token_ids=token_ids, max_tokens=max_tokens)
