"""Arms by kind, found among the entry points of what is installed."""

from __future__ import annotations

import importlib.metadata
from functools import lru_cache
from typing import Any

import msgspec

from paritygate.arms.base import Arm, ArmError

GROUP = "paritygate.arms"


@lru_cache(maxsize=1)
def _installed() -> importlib.metadata.EntryPoints:
    """What is installed does not change while a process runs, and every look at it reads all of its metadata."""
    return importlib.metadata.entry_points(group=GROUP)


def arm_class(kind: str) -> Any:
    """The class behind a kind. Raises ArmError naming the kinds that are installed."""
    found = _installed()
    for point in found:
        if point.name == kind:
            try:
                return point.load()
            except ImportError as error:
                raise ArmError(f"arm kind {kind!r} cannot be loaded: {error}") from error
    raise ArmError(
        f"no arm kind {kind!r} is installed: there are {', '.join(sorted({p.name for p in found}))}"
    )


def make_arm(name: str, kind: str, options: dict[str, Any], model: str) -> Arm:
    """An arm that is not open yet. Raises ArmError for an unknown kind or option."""
    cls = arm_class(kind)
    try:
        return cls(name, msgspec.convert(options, cls.Options), model)
    except msgspec.ValidationError as error:
        raise ArmError(f"arm {name}: {error}") from error
