"""The arms of a run: each started once, used by one claim at a time, and stopped at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from paritygate.arms.base import Arm, ArmError, StartsPrograms
from paritygate.arms.hosted import driven
from paritygate.arms.plausible import plausible
from paritygate.policy import Policy
from paritygate.triage.budget import Allowance


class ArmPool:
    """Gives out open arms by name; leaving the pool stops them all."""

    def __init__(self, policy: Policy, folder: Path | None = None) -> None:
        self._policy = policy
        # Where programs are started: beside the policy, or in the `folder` of another state of it.
        self._folder = (folder or Path(policy.invocation.root)).resolve()
        self._locks = {name: threading.Lock() for name in policy.arms}
        self._open: dict[str, Arm] = {}
        self._closed = False
        self.allowance = Allowance(policy.triage.checks)  # a run has one pool

    def _start(self, name: str) -> Arm:
        if self._closed:
            raise ArmError(f"arm {name} was not started: the run is over")
        spec = self._policy.arms[name]
        model = self._policy.checkpoint.location
        made = driven(name, spec.kind, spec.options, model)
        if isinstance(made, StartsPrograms):
            made.folder = self._folder
        arm = plausible(made, model)
        self._open[name] = arm
        arm.open()
        if self._closed:
            arm.close()
            raise ArmError(f"arm {name} was stopped as it started: the run is over")
        return arm

    @contextmanager
    def use(self, name: str) -> Iterator[Arm]:
        """An open arm, for this caller alone. Raises ArmError where it cannot be started."""
        with self._locks[name]:
            arm = self._open.get(name)
            if arm is None:
                try:
                    arm = self._start(name)
                except ArmError:
                    self.drop(name)
                    raise
            try:
                yield arm
            finally:
                # An arm that was being started, or restarted, when the pool was closed had nothing to stop yet.
                if self._closed:
                    arm.close()

    def drop(self, name: str) -> None:
        """Stop an arm that failed; the next use starts it again."""
        arm = self._open.pop(name, None)
        if arm is not None:
            arm.close()

    def close(self) -> None:
        """Stop every arm, also those that are answering."""
        self._closed = True
        for name in list(self._open):
            self.drop(name)

    def __enter__(self) -> ArmPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def pool_of(policy: Policy, arms: ArmPool | None) -> Iterator[ArmPool]:
    """The run's pool, left open; or, for a gate on its own, one that ends with it."""
    if arms is not None:
        yield arms
        return
    with ArmPool(policy) as pool:
        yield pool
