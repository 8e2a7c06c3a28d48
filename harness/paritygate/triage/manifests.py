"""The settings and the work behind two streams: what differed before any token did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.compare.identity import EXECUTION, SETTINGS
from paritygate.compare.reuse import partition_fault
from paritygate.golden.golden import Provenance
from paritygate.stream import Stream

# Counters that say how the same forward was cut, and with how many neighbours it ran.
PARTITION = ("prefill_pieces", "cached_tokens", "max_rows")


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
    """Every key that differs or that one side lacks: {name: {kind, reference, candidate}}, and a sentence."""
    ours, theirs = flattened(reference.manifest), flattened(candidate.manifest)
    silent = [stream.arm for stream, flat in ((reference, ours), (candidate, theirs)) if not flat]
    if silent:
        return {"differing": {}, "sentence": f"settings: not compared, {' and '.join(silent)} tells none"}
    greedy = ours.get("sampling.temperature") == theirs.get("sampling.temperature") == 0
    differing = {
        name: {"kind": _kind(name), "reference": ours.get(name), "candidate": theirs.get(name)}
        for name in [*ours, *(name for name in theirs if name not in ours)]
        if (name in ours) != (name in theirs) or ours.get(name) != theirs.get(name)
        # A row that draws nothing has a seed that means nothing.
        if not (greedy and name == "sampling.seed")
    }
    if not differing:
        return {"differing": {}, "sentence": f"settings: all {len(ours)} are alike"}
    named = ", ".join(
        f"{name} ({told['reference']} / {told['candidate']})" for name, told in differing.items()
    )
    return {"differing": differing, "sentence": f"settings that differ: {named}"}


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
