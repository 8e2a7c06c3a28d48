"""One revision on trial: its engine answers the case, judged by the goldens and the harness of the checkout in use.

`python -m paritygate.bisect.trial` reads a Request on stdin and writes a Reply on stdout. It runs in the revision's
tree, with that tree's engine first on PYTHONPATH.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from paritygate import policy as policies
from paritygate.arms.base import ArmError
from paritygate.bench.base import ENGINE
from paritygate.bench.pairs import HARNESS, BenchError, base_checkout
from paritygate.bisect.search import State, Trial
from paritygate.compare.comparison import Comparison
from paritygate.compare.identity import compare
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.golden import judge
from paritygate.golden.store import GoldenError, Store
from paritygate.own_stdout import own_stdout
from paritygate.stream import Stream
from paritygate.verdict import Verdict

BUILD_SECONDS = 1800.0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask: of a golden where `reference` is None. `tap` are tokens whose layers go into the file `taps`."""

    root: str
    case: str
    arm: str
    recorded: bool
    reference: Stream | None = None
    tap: tuple[int, ...] = ()
    taps: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its evidence, the stream, or why there is none."""

    verdict: str = ""
    headline: str = ""
    details: dict[str, Any] = {}
    stream: Stream | None = None
    fork: tuple[int, ...] = ()  # the tokens that the two answers share, prompt included
    tapped: bool = False
    error: str = ""


def _foreign_import(tree: Path) -> str:
    """A package of the tree's engine that would be imported from elsewhere, "" for none."""
    for package in sorted((tree / ENGINE).glob("*/__init__.py")):
        spec = importlib.util.find_spec(package.parent.name)
        if (
            spec is None
            or spec.origin is None
            or not Path(spec.origin).resolve().is_relative_to(tree.resolve())
        ):
            return package.parent.name
    return ""


def _reply(found: Comparison, stream: Stream) -> Reply:
    index, prompt = found.details.get("index"), stream.prompt_token_ids
    shared = () if index is None or prompt is None else prompt + (stream.token_ids or ())[:index]
    return Reply(
        verdict=found.verdict, headline=found.headline, details=found.details, stream=stream, fork=shared
    )


def answer(request: Request, tree: Path) -> Reply:
    """The reply, in the process that runs the revision."""
    if wrong := _foreign_import(tree):
        return Reply(error=f"{wrong} is not imported from this revision")
    root = Path(request.root)
    try:
        policy = policies.load(root)
        with ArmPool(policy, folder=tree) as pool, pool.use(request.arm) as arm:
            if request.tap:
                if not arm.capabilities.layer_taps:
                    return Reply(error=f"arm {request.arm} cannot tap its layers")
                taps = [arm.taps(request.tap) for _ in range(2)]  # type: ignore[attr-defined]
                np.savez(
                    request.taps, **{f"{n}:{k}": v for n, tap in enumerate(taps) for k, v in tap.items()}
                )
                return Reply(tapped=True)
            if request.recorded:
                golden = Store(root / policy.goldens.directory).load(request.case)
                found, stream = judge(arm, golden, policy)
                return _reply(found, stream)
            stream = arm.generate(policy.all_cases(root)[request.case])
            if request.reference is None:
                return Reply(verdict=Verdict.IDENTICAL, headline="its answer is the reference", stream=stream)
            found = compare(request.reference, stream, floor=policy.goldens.margin_floor)
            return _reply(found, stream)
    except (ArmError, GoldenError, policies.PolicyError) as error:
        return Reply(error=str(error))


def ask(revision: str, request: Request, build: str = "") -> Reply:
    """The reply of a revision, from its own tree, which is gone afterwards."""
    try:
        with base_checkout(Path(request.root), revision) as tree:
            if build and (why := _built(tree, build)):
                return Reply(error=why)
            path = [str(tree / ENGINE)] if (tree / ENGINE).is_dir() else []
            environment = {
                **os.environ, "PYTHONPATH": os.pathsep.join([*path, str(HARNESS)]), "PYTHONSAFEPATH": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            }  # fmt: skip
            finished = subprocess.run(
                [sys.executable, "-m", "paritygate.bisect.trial"],
                input=msgspec.json.encode(request), capture_output=True, cwd=tree, env=environment,
            )  # fmt: skip
    except BenchError as error:
        return Reply(error=str(error))
    try:
        return msgspec.json.decode(finished.stdout, type=Reply)
    except msgspec.MsgspecError:
        said = finished.stderr.decode(errors="replace").strip().splitlines()
        return Reply(error=f"its process ended with {finished.returncode}: {said[-1] if said else 'silent'}")


def _built(tree: Path, build: str) -> str:
    """Run the build in the tree; why it failed, "" where it did not."""
    try:
        done = subprocess.run(
            shlex.split(build), cwd=tree, capture_output=True, text=True, timeout=BUILD_SECONDS, errors="replace"
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it was not built: {error}"
    said = (done.stderr or done.stdout).strip().splitlines()
    return f"it was not built: {said[-1] if said else done.returncode}" if done.returncode else ""


def judged(revision: str, reply: Reply) -> Trial:
    """Good, bad, or skipped: what cannot be judged is neither."""
    if reply.error:
        return Trial(revision, State.SKIPPED, " ".join(reply.error.split())[:300])
    if reply.verdict in (Verdict.IDENTICAL, Verdict.TIE_BREAK):
        return Trial(revision, State.GOOD, reply.headline)
    if reply.verdict not in (Verdict.DIVERGED, Verdict.LENGTH):
        return Trial(revision, State.SKIPPED, f"{reply.verdict}: {reply.headline}")
    check = {
        "outcome": "fail",
        "verdict": reply.verdict,
        "headline": reply.headline,
        "details": reply.details,
    }
    return Trial(revision, State.BAD, reply.headline, check, reply.fork)


def main() -> None:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    out = own_stdout()
    out.write(msgspec.json.encode(answer(request, Path.cwd())))
    out.close()


if __name__ == "__main__":
    main()
