"""Whether two streams say the same thing: settings first, then tokens, bytes, finish and usage."""

from __future__ import annotations

from typing import Any

import msgspec

from paritygate.compare import diagnosis
from paritygate.compare.comparison import Comparison, side_by_side, spelled, token_evidence
from paritygate.compare.diff import diff
from paritygate.compare.logprobs import largest_difference
from paritygate.compare.narrowed import narrowed
from paritygate.stream import Position, Stream
from paritygate.verdict import Verdict

# Settings that decide what is said. Two streams that differ in one were not asked the same thing.
SETTINGS = (
    "weights_hash", "adapter_hash", "tokenizer_hash", "template_hash", "sampling", "max_tokens", "stop",
)  # fmt: skip
# Of these, what comes from the request and not from how an arm is set.
REQUESTED = ("sampling", "max_tokens", "stop")
# Settings that decide how it is computed: alike where arms of one backend are compared.
EXECUTION = (
    "backend", "device", "dtype", "weight_bits", "weight_group", "kv_bits", "threads", "prefill_size", "cache_reuse",
)  # fmt: skip


def _flat(manifest: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The settings by name, those of a table each by its own; a greedy row draws nothing, so its seed is none."""
    flat: dict[str, Any] = {}
    for key in keys:
        value = manifest.get(key)
        if isinstance(value, dict):
            greedy = value.get("temperature") == 0
            flat |= {
                f"{key}.{name}": setting for name, setting in value.items() if not (greedy and name == "seed")
            }
        elif key in manifest:
            flat[key] = value
    return flat


def one_engine(reference: Stream, candidate: Stream) -> bool:
    """Whether both manifests name one engine: then None is a value that it resolved, and otherwise nothing told."""
    engines = [side.manifest.get("engine") for side in (reference, candidate)]
    return engines[0] is not None and engines[0] == engines[1]


def manifest_differences(reference: Stream, candidate: Stream, keys: tuple[str, ...]) -> dict[str, list[Any]]:
    """Settings that both manifests tell and that differ."""
    ours, theirs = _flat(reference.manifest, keys), _flat(candidate.manifest, keys)
    valued = one_engine(reference, candidate)
    return {
        name: [ours[name], theirs[name]]
        for name in ours
        if name in theirs
        and ours[name] != theirs[name]
        and (valued or None not in (ours[name], theirs[name]))
    }


def _resolved_by_one_engine(reference: Stream, candidate: Stream, differing: dict[str, list[Any]]) -> bool:
    """Whether only what a request asks for differs, between two ways into the same engine: then no arm was set
    otherwise, and the engine's own transports read the request differently."""
    asked = all(key.partition(".")[0] in REQUESTED for key in differing)
    return asked and one_engine(reference, candidate)


def first_difference(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int | None:
    """The first index at which both have a token and the tokens differ."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)


def _at(stream: Stream, index: int) -> dict[str, Any]:
    ids = stream.token_ids or ()
    token_id = ids[index] if index < len(ids) else None
    position = stream.position(index)
    evidence = token_evidence(position, token_id)
    if token_id is None and position is not None:
        # The position that ended the answer: the token was decided and not pushed.
        evidence["token"] = position.token
        evidence["ended_with"] = position.token_id
    return evidence


def _tokens(reference: Stream, candidate: Stream, floor: float) -> tuple[Verdict, str, dict[str, Any]] | None:
    ours, theirs = reference.token_ids, candidate.token_ids
    if ours is None or theirs is None:
        return None
    index = first_difference(ours, theirs)
    verdict = Verdict.DIVERGED
    if index is None:
        if len(ours) == len(theirs):
            return None
        index, verdict = min(len(ours), len(theirs)), Verdict.LENGTH
    a, b = _at(reference, index), _at(candidate, index)
    gaps = [side["gap"] for side in (a, b) if side["gap"] is not None]
    decided = min(gaps) >= floor if gaps else None
    details = {"index": index, "at": {"reference": a, "candidate": b}, "decided": decided, "floor": floor}
    if verdict is Verdict.LENGTH:
        headline = f"{len(theirs)} tokens where {len(ours)} are expected; the common ones agree"
    else:
        headline = f"first differs at token {index}: {spelled(b)} where {spelled(a)} is expected"
    if a["gap"] is not None:
        headline += f" (gap {a['gap']:.4g}" + (f" and {b['gap']:.4g}" if b["gap"] is not None else "") + ")"
    if decided is not None:
        headline += ", at a decided position" if decided else f", at a near-tie (floor {floor:g})"
    return verdict, headline, details


def _text(reference: Stream, candidate: Stream, floor: float) -> tuple[Verdict, str, dict[str, Any]] | None:
    ours, theirs = reference.text_bytes, candidate.text_bytes
    if ours == theirs:
        return None
    offset = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )
    around = slice(max(0, offset - 20), offset + 20)
    a, b = (side[around].decode("utf-8", errors="replace") for side in (ours, theirs))
    headline = f"the text differs from byte {offset}: {b!r} where {a!r} is expected"
    details: dict[str, Any] = {"byte": offset, "bytes": [len(ours), len(theirs)]}
    places = [position_at_byte(side, offset) for side in (reference, candidate)]
    if None not in places:
        at = {
            side: token_evidence(place, place.token_id if place else None)
            for side, place in zip(("reference", "candidate"), places, strict=True)
        }
        gaps = [evidence["gap"] for evidence in at.values() if evidence["gap"] is not None]
        details |= {"at": at, "floor": floor, "decided": min(gaps) >= floor if gaps else None}
        headline += f" (gaps {' and '.join(f'{gap:.4g}' for gap in gaps)})" if gaps else ""
    return Verdict.DIVERGED, headline, details


def position_at_byte(stream: Stream, offset: int) -> Position | None:
    """The position whose token holds a byte of the text; None where the tokens' own texts do not spell it out."""
    end = 0
    for position in stream.positions or ():
        spelled_out = position.token.encode("utf-8")
        if stream.text_bytes[end : end + len(spelled_out)] != spelled_out:
            return None
        end += len(spelled_out)
        if offset < end:
            return position
    return None


def _ending(reference: Stream, candidate: Stream) -> tuple[Verdict, str, dict[str, Any]] | None:
    for field in ("finish_reason", "finish_cause"):
        ours, theirs = getattr(reference, field), getattr(candidate, field)
        if None not in (ours, theirs) and ours != theirs:
            return Verdict.DIVERGED, f"{field} is {theirs} where {ours} is expected", {field: [ours, theirs]}
    if reference.usage is None or candidate.usage is None:
        return None
    for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
        ours, theirs = getattr(reference.usage, field), getattr(candidate.usage, field)
        if ours != theirs:
            headline = f"usage says {theirs} {field} where {ours} are expected"
            return Verdict.DIVERGED, headline, {"usage": {field: [ours, theirs]}}
    return None


def _logprobs(reference: Stream, candidate: Stream) -> tuple[Verdict, str, dict[str, Any]] | None:
    pairs = zip(reference.positions or (), candidate.positions or (), strict=False)
    for index, (a, b) in enumerate(pairs):
        if a.top == b.top and a.logprob == b.logprob:
            continue
        worst = largest_difference(
            *(
                msgspec.structs.replace(side, positions=(one,))
                for side, one in ((reference, a), (candidate, b))
            )
        )
        if a.logprob != b.logprob:
            what = f"{b.logprob!r} where {a.logprob!r} is expected for {a.token!r}"
        elif worst is not None and worst.distance:
            what = f"{worst.logprobs[1]!r} where {worst.logprobs[0]!r} is expected for {worst.token!r}"
        else:
            what = f"the alternatives are {_named(b)} where {_named(a)} are expected"
        headline = f"the same answer, but other logprobs from token {index}: {what}"
        return Verdict.DIVERGED, headline, {"index": index, "logprobs": [a.logprob, b.logprob]}
    return None


def _named(position: Position) -> str:
    return ", ".join(repr(top.token) for top in position.top) or "none"


def compare(
    reference: Stream,
    candidate: Stream,
    *,
    floor: float,
    settings: tuple[str, ...] = SETTINGS,
    exact_logprobs: bool = False,
) -> Comparison:
    """IDENTICAL, DIVERGED or LENGTH; SETUP_ERROR where the arms were set differently; NOT_RUN on empty evidence."""
    sides = side_by_side(reference, candidate)
    if differing := manifest_differences(reference, candidate, settings):
        named = ", ".join(f"{key} {ours!r} and {theirs!r}" for key, (ours, theirs) in differing.items())
        if _resolved_by_one_engine(reference, candidate, differing):
            what = f"asked the same, one engine took it in two ways: {named}"
            return Comparison(Verdict.DIVERGED, what, sides | {"manifests": differing, "causes": [what]})
        return Comparison(
            Verdict.SETUP_ERROR, f"the arms were not set alike: {named}", sides | {"manifests": differing}
        )
    for one in (reference, candidate):
        if not one.text and not one.token_ids:
            both = not (reference.text or reference.token_ids or candidate.text or candidate.token_ids)
            what = "both answers are empty" if both else f"the answer of {one.arm} is empty"
            return Comparison(Verdict.NOT_RUN, f"{what}: nothing was compared", sides)
    if None not in (reference.prompt_token_ids, candidate.prompt_token_ids):
        ours, theirs = reference.prompt_token_ids or (), candidate.prompt_token_ids or ()
        if ours != theirs:
            index = first_difference(ours, theirs)
            at = min(len(ours), len(theirs)) if index is None else index
            return Comparison(
                Verdict.DIVERGED,
                f"the prompt was read as other tokens, from {at} on: {list(theirs[at : at + 3])} where "
                f"{list(ours[at : at + 3])} is expected",
                sides | {"prompt_index": at},
            )
    found = (
        _tokens(reference, candidate, floor)
        or _text(reference, candidate, floor)
        or _ending(reference, candidate)
    )
    if found is None and exact_logprobs:
        found = _logprobs(reference, candidate)
    unseen = narrowed(reference, candidate)
    if found is None:
        headline = f"the text agrees ({len(candidate.text_bytes)} bytes)"
        if reference.token_ids is not None and candidate.token_ids is not None:
            headline = f"{len(candidate.token_ids)} tokens, {len(candidate.text_bytes)} bytes: identical"
        headline += f" ({unseen})" if unseen else ""
        return Comparison(Verdict.IDENTICAL, headline, sides | ({"narrowed": unseen} if unseen else {}))
    verdict, headline, evidence = found
    causes = diagnosis.causes(reference, candidate)
    if causes:
        headline = f"{causes[0]}; {headline}"
    partitions = [side.counters.get("prefill_pieces") for side in (reference, candidate)]
    return Comparison(
        verdict,
        headline,
        sides
        | evidence
        | ({"narrowed": unseen} if unseen else {})
        | {"causes": causes, "prefill_pieces": partitions, "diff": diff(reference, candidate)},
    )
