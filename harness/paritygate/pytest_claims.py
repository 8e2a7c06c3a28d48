"""The claims of a policy inside a pytest session: arms that stay open, checks as text and as JUnit properties."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from paritygate import policy as policies
from paritygate.arms.base import Arm, ArmError
from paritygate.compare.comparison import Comparison
from paritygate.compare.identity import compare
from paritygate.console import Console
from paritygate.explain import show
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.replies import check_of
from paritygate.gates.run import PARITY
from paritygate.gates.units import KINDS
from paritygate.policy import Policy
from paritygate.stream import Stream
from paritygate.verdict import Check, Outcome

# What a reader wants to see of several verdicts: the worst.
ORDER = (Outcome.FAIL, Outcome.COULD_NOT_RUN, Outcome.INCONCLUSIVE, Outcome.PASS)


class MarkerError(Exception):
    """A marker that names nothing to run; the message says what there is."""


def _quiet(line: str) -> None:
    """Progress is for terminals; pytest captures this one."""


class Parity:
    """One policy and the arms of one session. Raises PolicyError where the policy cannot be read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.policy: Policy = policies.load(root)
        self._pool = ArmPool(self.policy)
        self._used: set[str] = set()

    def close(self) -> None:
        """Stop every arm."""
        self._pool.close()

    def arm(self, name: str) -> Arm:
        """An open arm. Raises ArmError where it cannot be started, MarkerError where the policy names none like it."""
        if name not in self.policy.arms:
            raise MarkerError(f"no arm is named {name!r}: there are {', '.join(self.policy.arms)}")
        self._used.add(name)
        with self._pool.use(name) as arm:
            return arm

    def after_error(self, error: BaseException) -> None:
        """Drop the arms that were given out when one of them failed: the next test gets them started again."""
        if isinstance(error, ArmError):
            for name in self._used:
                self._pool.drop(name)
            self._used.clear()

    def run(self, positional: tuple[Any, ...], given: Mapping[str, Any]) -> list[Check]:
        """The checks of the claim that a marker names. Raises MarkerError."""
        gate, narrowed = self._narrowed(positional, given)
        return list(PARITY[gate](narrowed, self.root, _quiet, self._pool))

    def _narrowed(self, positional: tuple[Any, ...], given: Mapping[str, Any]) -> tuple[str, Policy]:
        unknown = set(given) - {"claim", "arms", "cases"}
        if positional or unknown or "claim" not in given:
            raise MarkerError(
                'write @pytest.mark.parity(claim="..."), with arms=[...] and cases=[...] where wanted'
            )
        name = given["claim"]
        claim = self.policy.claims.get(name)
        if claim is None:
            raise MarkerError(f"no claim is named {name!r}: there are {', '.join(self.policy.claims)}")
        changes = {}
        for key in ("arms", "cases"):
            if given.get(key) is None:
                continue
            has = getattr(claim, key, None)
            wanted = tuple(given[key])
            if has is None or not wanted or (has and set(wanted) - set(has)):
                raise MarkerError(f"{key}={list(wanted)}: claim {name!r} has {key} {list(has or ())}")
            changes[key] = wanted
        gate = next(gate for gate, (kind, _) in KINDS.items() if isinstance(claim, kind))
        claims = {name: msgspec.structs.replace(claim, **changes)}
        return gate, msgspec.structs.replace(self.policy, claims=claims)

    def properties(self, checks: list[Check]) -> list[tuple[str, object]]:
        """What JUnit shows beside the test: how many checks, of which gate, and the worst verdict."""
        if not checks:
            return []
        worst = min(checks, key=lambda check: ORDER.index(check.outcome))
        return [
            ("parity_checks", len(checks)),
            ("parity_gate", worst.gate),
            ("parity_verdict", str(worst.verdict)),
            ("parity_headline", worst.headline),
        ]

    def failure(self, checks: list[Check]) -> str:
        """What did not pass, in full; "" where all did. No check at all is no pass."""
        if not checks:
            return "the claim ran no check: nothing was measured"
        wrong = [check for check in checks if check.outcome is not Outcome.PASS]
        if not wrong:
            return ""
        return f"{len(wrong)} of {len(checks)} checks did not pass\n\n{_shown(wrong)}"

    def compare(self, reference: Stream, candidate: Stream) -> Comparison:
        """Two streams, by the floor of the policy."""
        return compare(reference, candidate, floor=self.policy.goldens.margin_floor)

    def told(self, name: str, found: Comparison) -> str:
        """A comparison as text: headline, both sides, diff."""
        return _shown([check_of("pytest", name, found, seconds=0.0)])


def _shown(checks: Iterable[Check]) -> str:
    text = io.StringIO()
    console = Console(file=text, width=110, color_system=None)
    for check in checks:
        show(console, asdict(check))
    return text.getvalue().rstrip()
