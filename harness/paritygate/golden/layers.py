"""Layers: goldens of one class of machine override those that hold for every machine.

A layer's key is a machine key or a glob over machine keys. Of the layers that match a machine, the most specific one
that holds a case gives its golden: an exact key before any glob, then the glob with the most characters that are none
of `* ? [ ]`. Two that are equally specific are an error.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from paritygate.golden.golden import GoldenError

REFERENCE = "reference"  # the layer that holds for every machine
MACHINES = "machines"

_KEY = re.compile(r"[A-Za-z0-9_.*?\[\]!-]+")


def layer_of(key: str) -> str:
    """The layer of a machine key or glob, "reference" for that word. Raises GoldenError for what is no key."""
    if key == REFERENCE:
        return REFERENCE
    bare = key.removeprefix(f"{MACHINES}/")
    if not _KEY.fullmatch(bare) or bare.startswith("."):
        raise GoldenError(f"{key!r} is no machine key: `golden status` shows this machine's")
    return f"{MACHINES}/{bare}"


def key_of(layer: str) -> str:
    """The key that a layer is filed under; the reference layer's matches every machine."""
    return "*" if layer == REFERENCE else layer.removeprefix(f"{MACHINES}/")


def matches(layer: str, machine: str) -> bool:
    """Whether a layer holds for a machine."""
    return fnmatch.fnmatchcase(machine, key_of(layer))


def specificity(layer: str) -> tuple[int, int]:
    """More specific layers compare greater."""
    if layer == REFERENCE:
        return (0, 0)
    key = key_of(layer)
    literal = re.sub(r"\[[^\]]*\]|[*?]", "", key)
    return (1 if literal != key else 2, len(literal))


def most_specific(layers: Iterable[str], machine: str, case: str) -> str | None:
    """The layer that gives a case on a machine, None where none holds for it. Raises GoldenError on a tie."""
    matching = sorted((layer for layer in layers if matches(layer, machine)), key=specificity, reverse=True)
    if not matching:
        return None
    first, *others = matching
    if others and specificity(others[0]) == specificity(first):
        raise GoldenError(
            f"{case}: the layers {first} and {others[0]} both hold for {machine} and are equally specific: "
            f"rename one, or remove its golden"
        )
    return first
