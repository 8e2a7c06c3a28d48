"""`paritygate bisect`: which commit changed what a case says."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer

from paritygate.bench.pairs import BenchError, git
from paritygate.bisect.search import Found, State, Trial, search
from paritygate.bisect.trial import Request, ask, judged
from paritygate.command_line import Root, policy_at, refused
from paritygate.console import Console
from paritygate.explain import show
from paritygate.policy import GoldenClaim, Policy
from paritygate.scratch import scratch
from paritygate.triage import layers
from paritygate.triage.triage import TAPPED_TOKENS
from paritygate.verdict import Exit

console = Console()


def _say(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _subject(root: Path, revision: str) -> str:
    return git(root, "log", "-1", "--format=%h %s", revision)


def _commits(root: Path, good: str, bad: str) -> list[str]:
    """Every commit after `good` up to `bad`, oldest first: the main line, or the whole path where it left that."""
    base = git(root, "rev-parse", "--verify", f"{good}^{{commit}}")
    tip = git(root, "rev-parse", "--verify", f"{bad}^{{commit}}")
    try:
        git(root, "merge-base", "--is-ancestor", base, tip)
    except BenchError:
        raise BenchError(
            f"{good} is not an ancestor of {bad}: name an earlier commit of that history"
        ) from None
    line = git(root, "rev-list", "--reverse", "--first-parent", f"{base}..{tip}").split()
    if line and git(root, "rev-parse", f"{line[0]}^") == base:
        return line
    return git(root, "rev-list", "--reverse", "--topo-order", "--ancestry-path", f"{base}..{tip}").split()


def _arm(policy: Policy, wanted: str) -> str:
    claimed = [arm for c in policy.claims.values() if isinstance(c, GoldenClaim) for arm in c.arms]
    arm = wanted or next(iter([*claimed, *policy.arms]), "")
    if arm not in policy.arms:
        raise refused(f"no arm is named {arm!r}: there are {', '.join(policy.arms)}")
    return arm


def bisect(
    case: Annotated[str, typer.Argument(help="A case of the policy.")],
    good: Annotated[str, typer.Option(help="A revision at which it was right.")],
    bad: Annotated[str, typer.Option(help="One at which it is wrong.")] = "HEAD",
    arm: Annotated[str, typer.Option(help="The first of the golden claims unless given.")] = "",
    build: Annotated[str, typer.Option(help="A command to run in each tree first.")] = "",
    root: Root = Path(),
) -> None:
    """Find the commit from which on an arm says something else. Exit: 0 found, 4 not narrowed down to one."""
    root = root.resolve()
    # A search that is told to end removes its worktree, as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    policy = policy_at(root)
    try:
        if case not in policy.all_cases(root):
            raise refused(f"no case is named {case!r}: there are {', '.join(policy.all_cases(root))}")
        recorded = case in {one.name for one in policy.golden_cases(root)}
        request = Request(root=str(root), case=case, arm=_arm(policy, arm), recorded=recorded)
        commits = _commits(root, good, bad)
        if not commits:
            raise BenchError(f"there is no commit after {good} up to {bad}")
        found = _found(root, request, git(root, "rev-parse", f"{good}^{{commit}}"), commits, build)
        _tell(root, found, request, build)
    except BenchError as error:
        raise refused(str(error)) from None
    except KeyboardInterrupt:
        raise refused("interrupted: no commit was found", Exit.INCONCLUSIVE) from None
    raise typer.Exit(Exit.PASS if len(found.candidates) == 1 else Exit.INCONCLUSIVE)


def _found(root: Path, request: Request, good: str, commits: list[str], build: str) -> Found:
    first = ask(good, request, build)
    start = judged(good, first)
    _say(f"{start.state:7} {_subject(root, good)}: {start.said}")
    if start.state is not State.GOOD:
        code = Exit.COULD_NOT_RUN if start.state is State.SKIPPED else Exit.USAGE
        raise refused(f"the good revision is not good, name another with --good: {start.said}", code)
    if not request.recorded:
        _say("        the case has no golden: what this revision says is the reference")
        request = msgspec.structs.replace(request, reference=first.stream)

    def judge(revision: str) -> Trial:
        trial = judged(revision, ask(revision, request, build))
        _say(f"{trial.state:7} {_subject(root, revision)}: {trial.said}")
        return trial

    last = judge(commits[-1])
    if last.state is not State.BAD:
        code = Exit.COULD_NOT_RUN if last.state is State.SKIPPED else Exit.USAGE
        what = "is not bad (changes that are not committed do not count)"
        if last.state is State.SKIPPED:
            what = "cannot be judged"
        raise refused(f"the bad revision {what}: {last.said}", code)
    return search(good, commits, last, judge)


def _tell(root: Path, found: Found, request: Request, build: str) -> None:
    if len(found.candidates) == 1:
        _say(f"\nfirst bad commit: {_subject(root, found.first_bad.revision)}")
    else:
        _say(f"\nthe first bad commit is one of {len(found.candidates)}, those between could not be judged:")
        for revision in found.candidates:
            _say(f"  {_subject(root, revision)}")
    if found.first_bad.check is not None:
        name = f"{request.arm}/{request.case} at {found.first_bad.revision[:10]}"
        show(console, {"name": name, **found.first_bad.check})
    _say(f"  {_layers(found, request, build)}")


def _layers(found: Found, request: Request, build: str) -> str:
    """Where the forwards of the last good and the first bad revision part, over the tokens at the fork."""
    tokens = found.first_bad.fork
    if not 0 < len(tokens) <= TAPPED_TOKENS:
        return f"layers: not compared, the fork is not within the first {TAPPED_TOKENS} tokens"
    pairs = []
    names = (found.last_good, found.first_bad.revision)
    with scratch("taps") as folder:
        for revision in names:
            file = str(folder / f"{revision}.npz")
            reply = ask(revision, msgspec.structs.replace(request, tap=tokens, taps=file), build)
            if not reply.tapped:
                return f"layers: not compared, {revision[:10]}: {' '.join(reply.error.split())[:200]}"
            with np.load(file) as held:
                both: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = ({}, {})
                for name in held.files:
                    number, _, tap = name.partition(":")
                    both[int(number)][tap] = held[name]
            pairs.append(both)
    between = (names[0][:10], names[1][:10])
    try:
        return layers.first_difference(between, layers.taps_of(pairs[0], pairs[1], 0.0), len(tokens), 0.0)[
            "sentence"
        ]
    except ValueError as error:
        return f"layers: not compared, {error}"
