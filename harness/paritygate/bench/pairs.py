"""Two checkouts measured side by side: fresh processes in balanced order, each proved to have run its own engine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import paritygate
from paritygate import revision as revisions
from paritygate.bench.observation import Observation, Workload
from paritygate.scratch import scratch

OBSERVATION_SECONDS = 240.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
HARNESS = Path(paritygate.__file__).parent.parent


class BenchError(Exception):
    """A measurement that could not be made; the message says why."""


@dataclass(frozen=True)
class Side:
    """One of the two things compared: a checkout whose `engine/` is imported, and what it is asked to run."""

    name: str
    checkout: Path
    workload: Workload
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def engine(self) -> Path:
        """The folder that the engine must be imported from."""
        return self.checkout / "engine"


def observe_side(side: Side, timeout: float = OBSERVATION_SECONDS) -> Observation:
    """One observation in a fresh process. Raises BenchError, also where another engine than the side's was imported."""
    path = os.pathsep.join([str(side.engine), str(HARNESS)])
    threads = {name: str(side.workload.threads) for name in THREAD_VARIABLES}
    environment = {**os.environ, **threads, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **side.environment}
    try:
        finished = subprocess.run(
            [sys.executable, "-m", "paritygate.bench.observe"],
            input=msgspec.json.encode(side.workload),
            capture_output=True,
            cwd=side.checkout,
            env=environment,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{side.name}: no observation within {timeout:g} s") from None
    if finished.returncode:
        said = finished.stderr.decode(errors="replace").strip().splitlines()
        raise BenchError(
            f"{side.name}: the measuring process failed: {said[-1] if said else finished.returncode}"
        )
    try:
        observation = msgspec.json.decode(finished.stdout, type=Observation)
    except msgspec.MsgspecError as error:
        raise BenchError(f"{side.name}: the measuring process printed no observation: {error}") from None
    if side.workload.kind == "tokenline":
        imported = Path(observation.engine_file).resolve()
        if not imported.is_relative_to(side.engine.resolve()):
            raise BenchError(f"{side.name}: {imported} was imported where {side.engine} was to be measured")
    return observation


def order(number: int) -> tuple[bool, bool, bool, bool]:
    """Whether each of a round's four observations is of the head: ABBA, then BAAB, so that drift cancels."""
    return (False, True, True, False) if number % 2 == 0 else (True, False, False, True)


def git(root: Path, *arguments: str) -> str:
    """What git says in a repository. Raises BenchError with git's own words."""
    try:
        return revisions.git(root, *arguments)
    except revisions.GitError as error:
        raise BenchError(str(error)) from error


@contextlib.contextmanager
def base_checkout(root: Path, revision: str) -> Iterator[Path]:
    """The tree of a revision in a temporary folder, removed afterwards, whatever happens."""
    try:
        with scratch("base") as folder:
            place = folder / "tree"
            git(root, "worktree", "add", "--detach", "--quiet", str(place), revision)
            yield place
    finally:
        with contextlib.suppress(BenchError):
            git(root, "worktree", "prune")
