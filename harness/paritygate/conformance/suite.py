"""All checks, in order, each with one line to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from paritygate.arms.base import ArmError
from paritygate.conformance import answers, protocol, teacher_forcing
from paritygate.conformance.subject import Broken, Subject

Check = Callable[[Subject], str]

CHECKS: dict[str, Check] = {
    "options": protocol.options,
    "capabilities": protocol.capabilities,
    "opening": protocol.opening,
    "declared": answers.declared,
    "consistent": answers.consistent,
    "pieces": answers.pieces,
    "ending": answers.ending,
    "one-token": answers.one_token,
    "stop-string": answers.stop_string,
    "unicode": answers.unicode,
    "repeatable": answers.repeatable,
    "forgetting": answers.forgetting,
    "logits": teacher_forcing.logits,
    "impossible": answers.impossible,
    "timeout": protocol.timeout,
    "nothing-left": protocol.nothing_left,
}


@dataclass(frozen=True)
class Finding:
    """What one check found. `setup` says that the engine could not be run at all, which is no fault of the adapter."""

    check: str
    held: bool
    what: str
    setup: bool = False


def _found(name: str, check: Check, subject: Subject) -> Finding:
    try:
        return Finding(name, True, check(subject))
    except Broken as broken:
        return Finding(name, False, str(broken))
    except ArmError as error:
        subject.drop()
        return Finding(name, False, f"ArmError: {error}", setup=True)
    except Exception as error:  # the boundary: an adapter may raise anything, and only ArmError is allowed
        subject.drop()
        return Finding(name, False, f"{type(error).__name__}, which is no ArmError: {error}")


def conformance(
    adapter: str | type[Any],
    options: dict[str, Any] | None = None,
    *,
    model: str,
    only: tuple[str, ...] = (),
) -> Iterator[Finding]:
    """Every check, as it is done, of a kind or of an arm's class. Raises ArmError for a kind that is not installed."""
    subject = Subject(adapter, options or {}, model)
    try:
        for name, check in CHECKS.items():
            if not only or name in only:
                yield _found(name, check, subject)
    finally:
        subject.drop()


def assert_conforms(adapter: str | type[Any], options: dict[str, Any] | None = None, *, model: str) -> None:
    """For pytest: AssertionError with a line for each check that did not hold."""
    broken = [
        f"{found.check}: {found.what}"
        for found in conformance(adapter, options, model=model)
        if not found.held
    ]
    if broken:
        raise AssertionError("the adapter does not keep the protocol of arms:\n" + "\n".join(broken))
