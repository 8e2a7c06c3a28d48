"""The settings and the work behind two streams: what differed before any token did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.compare.identity import EXECUTION, SETTINGS, one_engine
from paritygate.compare.reuse import partition_fault
from paritygate.golden.golden import Provenance
from paritygate.stream import Stream

# Counters that say how the same forward was cut, and with how many neighbours it ran.
PARTITION = ("prefill_pieces", "cached_tokens", "max_rows")

SHOWN = 6  # names of settings that only one side tells, in a sentence; the evidence has them all


def flattened(manifest: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every setting by its dotted name."""
    flat: dict[str, Any] = {}
    for key, value in manifest.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _kind(name: str) -> str:
    first = name.partition(".")[0]
    if first in SETTINGS:
        return "decides what is said"
    return "decides how it is computed" if first in EXECUTION else "other"


def manifests(reference: Stream, candidate: Stream) -> dict[str, Any]:
    """Every key that both sides tell and that differs, {name: {kind, reference, candidate}}; under `untold` the keys
    that only one side tells, by the arm that does not; and a sentence."""
    valued = one_engine(reference, candidate)
    ours, theirs = (
        {name: value for name, value in flattened(side.manifest).items() if valued or value is not None}
        for side in (reference, candidate)
    )
    silent = [stream.arm for stream, flat in ((reference, ours), (candidate, theirs)) if not flat]
    if silent:
        told = f"settings: not compared, {' and '.join(silent)} tells none"
        return {"differing": {}, "untold": {}, "sentence": told}
    greedy = ours.get("sampling.temperature") == theirs.get("sampling.temperature") == 0
    # A row that draws nothing has a seed that means nothing.
    shared = [name for name in ours if name in theirs and not (greedy and name == "sampling.seed")]
    differing = {
        name: {"kind": _kind(name), "reference": ours[name], "candidate": theirs[name]}
        for name in shared
        if ours[name] != theirs[name]
    }
    untold: dict[str, list[str]] = {}
    for arm, knows, other in ((reference.arm, ours, theirs), (candidate.arm, theirs, ours)):
        if lacking := [name for name in other if name not in knows]:
            untold.setdefault(arm, []).extend(lacking)
    if differing:
        named = (f"{name} ({told['reference']} / {told['candidate']})" for name, told in differing.items())
        sentence = f"settings that differ: {', '.join(named)}"
    else:
        sentence = (
            f"settings: all {len(shared)} that both tell are alike"
            if shared
            else "settings: none is told by both"
        )
    for arm, names in untold.items():
        sentence += f"; not told by {arm}: {_shortened(names)}"
    return {"differing": differing, "untold": untold, "sentence": sentence}


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def recorded(provenance: Provenance, candidate: Stream) -> dict[str, Any]:
    """Libraries that the oracles and the arm both name and that differ: a golden has no settings beside them."""
    ours = {name: version for run in provenance.runs for name, version in run.versions.items()}
    theirs = candidate.manifest.get("libraries")
    theirs = theirs if isinstance(theirs, Mapping) else {}
    shared = [name for name in ours if name in theirs]
    differing = {
        f"libraries.{name}": {"kind": "other", "reference": ours[name], "candidate": theirs[name]}
        for name in shared
        if ours[name] != theirs[name]
    }
    who = " and ".join(
        dict.fromkeys(f"{run.oracle} {ours.get(run.oracle, '')}".strip() for run in provenance.runs)
    )
    if differing:
        named = [f"{n.partition('.')[2]} ({t['reference']} / {t['candidate']})" for n, t in differing.items()]
        apart = f"libraries that differ: {', '.join(named)}"
    else:
        apart = (
            f"shared libraries are alike ({', '.join(shared)})" if shared else "no library in common is told"
        )
    return {"differing": differing, "sentence": f"settings: the golden is by {who}; {apart}"}


def partition(reference: Stream, candidate: Stream, *, cached: bool = False) -> dict[str, Any]:
    """Whether the prompts were cut alike and ran beside as many rows, by the counters of both sides.

    A hit (`cached`) is cut as the cold run is, from where it resumes.
    """
    told = {name: [reference.counters.get(name), candidate.counters.get(name)] for name in PARTITION}
    known = {name: pair for name, pair in told.items() if None not in pair}
    differing = [name for name, (ours, theirs) in known.items() if ours != theirs]
    cold, hit = known.get("prefill_pieces", (None, None))
    if cached and cold and hit:
        # What was reused differs by design, and so do the pieces before it.
        differing = [name for name in differing if name == "max_rows"]
        if fault := partition_fault(reference, candidate):
            differing.append("prefill_pieces")
            sentence = f"partition: {fault}"
        else:
            sentence = f"partition: the hit ran what the cold run ran from there on, {hit} of {cold}"
    elif differing:
        sentence = "; ".join(f"{name} differ: {known[name][0]} and {known[name][1]}" for name in differing)
    elif known:
        sentence = (
            f"partition and batch are alike: {', '.join(f'{n} {pair[0]}' for n, pair in known.items())}"
        )
    else:
        lacking = reference if not reference.counters else candidate
        sentence = f"partition and batch: not compared, {lacking.arm} counts no work"
    return {"counters": told, "differing": differing, "sentence": sentence}
