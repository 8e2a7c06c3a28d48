"""The first layer whose array differs by more than both arms' own repeats and the envelope explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Taps = Mapping[str, np.ndarray]
# Rounding may be a larger part of a layer's largest value than of the head's, where the envelope was registered: on
# SmolLM2-135M, torch against MLX in float32, up to 1.3 times the envelope's part. Planted faults are 100 times it.
HEADROOM = 8.0


@dataclass(frozen=True)
class Tap:
    """One array of both arms: the largest |Δ|, at which position, what was allowed there, and whether it is above."""

    name: str
    max_abs: float
    at: int
    allowed: float
    above: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "max_abs": self.max_abs, "at": self.at, "allowed": self.allowed, "above": self.above,
        }  # fmt: skip


def place(name: str) -> str:
    """A tap's name in words: `layer 3, attention`."""
    if name.startswith("layers."):
        _, layer, block = name.split(".", 2)
        return f"layer {layer}, {block.replace('_', ' ')}"
    return name


def _by_position(array: np.ndarray) -> np.ndarray:
    return np.abs(array.astype(np.float64)).max(axis=-1)


def taps_of(first: tuple[Taps, Taps], other: tuple[Taps, Taps], share: float) -> list[Tap]:
    """The arrays that both arms tell, in the first's order; each arm was asked twice, for the repeat control.

    A position of an array may differ by what the two runs of either arm differ there, and by `share` of its largest
    value (see `share_of`). ValueError for arrays of other shapes.
    """
    found = []
    for name, ours in first[0].items():
        theirs = other[0].get(name)
        if theirs is None:
            continue
        if ours.shape != theirs.shape:
            raise ValueError(f"{name} has the shape {ours.shape} in one arm and {theirs.shape} in the other")
        difference = _by_position(ours - theirs)
        control = np.maximum(_by_position(ours - first[1][name]), _by_position(theirs - other[1][name]))
        allowed = control + share * np.maximum(_by_position(ours), _by_position(theirs))
        # NaN is above every bound.
        excess = ~(difference <= allowed)
        at = int(np.argmax(np.where(excess, np.nan_to_num(difference, nan=np.inf), -1.0)))
        if not excess.any():
            at = int(difference.argmax())
        found.append(Tap(name, float(difference[at]), at, float(allowed[at]), bool(excess.any())))
    return found


# Of a layer's largest value, where two engines are compared that no envelope is registered for: between torch, MLX and
# transformers in float32 a few millionths were seen; a wrong weight, mask or rope moves a layer by a hundredth or more.
BETWEEN_ENGINES = 1e-4


def share_of(max_abs_logit: float | None, head: np.ndarray | None) -> float:
    """HEADROOM times the registered |Δlogit| as a part of the largest |logit|; 0 where the arms must be equal."""
    largest = 0.0 if head is None else float(np.abs(head).max())
    return HEADROOM * max_abs_logit / largest if max_abs_logit and largest else 0.0


def first_difference(between: tuple[str, str], taps: list[Tap], tokens: int, share: float) -> dict[str, Any]:
    """The evidence: every tap, the first that is above what is allowed, and a sentence."""
    first = next((tap for tap in taps if tap.above), None)
    rule = "their repeats" if not share else f"their repeats and {share:.2g} of the largest value"
    if not taps:
        sentence = f"layers: {between[0]} and {between[1]} name no array alike"
    elif first is None:
        largest = max(taps, key=lambda tap: tap.max_abs)
        sentence = (
            f"layers: one forward of the same {tokens} tokens leaves the same in all {len(taps)} arrays of "
            f"{between[0]} and {between[1]}, within {rule} (largest |Δ| {largest.max_abs:.3g}, {place(largest.name)}): "
            f"the network is not at fault, look at caches, partition, sampler and text"
        )
    else:
        before = taps[: taps.index(first)]
        alike = f"the {len(before)} arrays before it agree" if before else "it is the first array of all"
        sentence = (
            f"layers: {place(first.name)} is the first that differs between {between[0]} and {between[1]}: max |Δ| "
            f"{first.max_abs:.3g} at position {first.at}, {first.allowed:.3g} allowed by {rule}; {alike}"
        )
    return {
        "between": list(between),
        "tokens": tokens,
        "share": share,
        "first": None if first is None else {"place": place(first.name), **first.to_json()},
        "taps": [tap.to_json() for tap in taps],
        "sentence": sentence,
    }
