"""The bar that a change is held to: the policy and the goldens of its base, not those that it brings itself."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from paritygate.invocation import Invocation
from paritygate.policy.load import load
from paritygate.policy.policy import Policy
from paritygate.policy.reader import PolicyError
from paritygate.revision import git, raw, told
from paritygate.scratch import scratch

# What a change could edit so that it is asked less, or asked of something else.
JUDGED_BY = ("arms", "goldens", "claims", "envelopes", "cases", "structure", "bench", "faults", "waivers")
SHOWN = 12


@dataclass(frozen=True)
class Bar:
    """The policy of `revision`, whose goldens lie in a checkout of it, and what the change under test edits of it."""

    revision: str
    policy: Policy
    edited: tuple[str, ...]


@contextmanager
def bar_of(root: Path, revision: str, head: Policy) -> Iterator[Bar]:
    """The bar of a commit for a change whose own policy is `head`, while inside.

    Raises PolicyError where the commit, or a policy in it, is not there.
    """
    commit = told(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not commit:
        raise PolicyError(f"--bar: there is no commit {revision!r} here: fetch it, or name another")
    top, inside = Path(git(root, "rev-parse", "--show-toplevel")), git(root, "rev-parse", "--show-prefix")
    with scratch("bar") as folder:
        with tarfile.open(fileobj=io.BytesIO(raw(top, "archive", "--format=tar", commit))) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(folder, filter="data")
            else:  # Pythons before 3.11.4; it is git's own archive of this repository
                tar.extractall(folder)
        base_root = folder / inside
        try:
            policy = load(base_root)
        except PolicyError as error:
            raise PolicyError(f"--bar {revision}: its policy cannot be used here: {error}") from error
        goldens = msgspec.structs.replace(
            policy.goldens,
            directory=str(base_root / policy.goldens.directory) if policy.goldens.directory else "",
        )
        edited = _edited(head, policy, root, base_root)
        yield Bar(
            revision=commit[:10],
            policy=msgspec.structs.replace(
                policy, goldens=goldens, invocation=Invocation(head.invocation.root, revision)
            ),
            edited=edited,
        )


def _edited(head: Policy, base: Policy, head_root: Path, base_root: Path) -> tuple[str, ...]:
    """Sentences: each setting and golden of the bar that the change edits."""
    said: list[str] = []
    for name in JUDGED_BY:
        ours, theirs = (msgspec.to_builtins(getattr(side, name)) for side in (base, head))
        said += _differences(name, ours, theirs)
    for rule in base.structure.rules:
        sides = [(place / rule.baseline).read_bytes() if rule.baseline and (place / rule.baseline).is_file() else b""
                 for place in (base_root, head_root)]  # fmt: skip
        if sides[0] != sides[1]:
            said.append(
                f"baseline {rule.baseline} is changed (applied: it can only shrink, or say why it grew)"
            )
    if base.goldens.directory and head.goldens.directory:
        said += _golden_files(base_root / base.goldens.directory, head_root / head.goldens.directory)
    return tuple(said)


def _differences(name: str, base: Any, head: Any) -> list[str]:
    if base == head:
        return []
    if isinstance(base, dict) and isinstance(head, dict):
        keys = dict.fromkeys((*base, *head))
        return [line for key in keys for line in _differences(f"{name}.{key}", base.get(key), head.get(key))]
    if isinstance(base, (list, tuple, dict)) or isinstance(head, (list, tuple, dict)):
        return [f"{name} is {'added' if base is None else 'removed' if head is None else 'changed'}"]
    return [f"{name} is {head!r}, {base!r} at the base"]


def _golden_files(base: Path, head: Path) -> list[str]:
    def digest(folder: Path) -> dict[str, bytes]:
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.jsonl")}

    ours, theirs = digest(base), digest(head)
    return [
        f"golden {name} is {'added' if name not in ours else 'removed' if name not in theirs else 'changed'}"
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    ]


def sentence(bar: Bar) -> str:
    """What a report says about the bar."""
    held = f"held to the policy and the goldens of {bar.revision}"
    if not bar.edited:
        return f"{held}; the change edits nothing of them"
    shown = "; ".join(bar.edited[:SHOWN])
    more = f"; and {len(bar.edited) - SHOWN} more" if len(bar.edited) > SHOWN else ""
    return f"{held}; what the change edits of them was not applied: {shown}{more}"
