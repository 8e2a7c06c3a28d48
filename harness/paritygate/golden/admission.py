"""What oracles must agree on before an answer may become a golden."""

from __future__ import annotations

import datetime
import itertools

from paritygate.case import Case
from paritygate.golden.golden import GOLDEN_SCHEMA, Golden, OracleRun, Provenance
from paritygate.golden.oracles import OracleAnswer
from paritygate.policy import GoldenPolicy
from paritygate.stream import Position


class NotAdmitted(Exception):
    """Why the answers of a case are no golden."""


def _largest_difference(ours: tuple[Position, ...], theirs: tuple[Position, ...]) -> float:
    """The largest |difference| of a margin, or of the logprob of a token that both report."""
    largest = 0.0
    for a, b in zip(ours, theirs, strict=True):
        logprobs = {top.token_id: top.logprob for top in b.top}
        for top in a.top:
            if top.token_id in logprobs:
                largest = max(largest, abs(top.logprob - logprobs[top.token_id]))
        largest = max(largest, abs((a.margin or 0.0) - (b.margin or 0.0)))
    return round(largest, 6)


def _disagreement(first: OracleAnswer, other: OracleAnswer) -> str:
    who = f"{other.oracle} with {other.threads} thread(s)"
    if other.prompt_token_ids != first.prompt_token_ids:
        return f"{who} read other prompt tokens"
    if other.token_ids != first.token_ids:
        pairs = itertools.zip_longest(first.token_ids, other.token_ids)
        index = next(i for i, (a, b) in enumerate(pairs) if a != b)
        return f"{who} says another token at {index}"
    if (other.text, other.finish_cause) != (first.text, first.finish_cause):
        return f"{who} ended with {other.finish_cause} and {other.text!r}"
    return ""


def _margin(answer: OracleAnswer) -> float:
    return min((position.margin or 0.0 for position in answer.positions), default=0.0)


def _runs(answers: list[OracleAnswer], differences: list[float]) -> tuple[OracleRun, ...]:
    """One entry for each oracle and thread count, its repeats counted."""
    runs: dict[tuple[str, int], OracleRun] = {}
    for answer, difference in zip(answers, differences, strict=True):
        before = runs.get((answer.oracle, answer.threads))
        runs[answer.oracle, answer.threads] = OracleRun(
            oracle=answer.oracle,
            dtype="float32",
            threads=answer.threads,
            versions=answer.versions,
            max_difference=max(difference, before.max_difference if before else 0.0),
            repeats=before.repeats + 1 if before else 1,
            min_margin=min(_margin(answer), before.min_margin or 0.0) if before else _margin(answer),
        )
    return tuple(runs.values())


def oracles_admitted(policy: GoldenPolicy, chosen: tuple[str, ...]) -> int:
    """How often each of the chosen oracles must answer. Raises NotAdmitted where the policy admits no such choice."""
    for oracle in chosen:
        if oracle not in policy.oracles:
            raise NotAdmitted(f"the policy has no oracle {oracle!r}: there are {', '.join(policy.oracles)}")
    if len(set(chosen)) >= 2:
        return 1
    if policy.repeats_alone < 2:
        raise NotAdmitted(
            f"one oracle alone is not admitted: choose two of {', '.join(policy.oracles)}, or let the policy say how "
            f"often one must repeat itself ([goldens] repeats_alone, 2 or more)"
        )
    return policy.repeats_alone


def admit(
    case: Case,
    answers: list[OracleAnswer],
    policy: GoldenPolicy,
    *,
    weights_sha256: str,
    machine: str,
    oracles: tuple[str, ...] = (),
) -> Golden:
    """The golden of a case, by the policy's oracles or those chosen. Raises NotAdmitted, the first reason."""
    oracles = oracles or policy.oracles
    repeats = oracles_admitted(policy, oracles)
    wanted = {(oracle, threads) for oracle in oracles for threads in policy.threads}
    given = {(answer.oracle, answer.threads) for answer in answers}
    if missing := wanted - given:
        raise NotAdmitted(f"no answer of {', '.join(f'{o} with {t} thread(s)' for o, t in sorted(missing))}")
    for oracle, threads in sorted(wanted):
        times = sum((answer.oracle, answer.threads) == (oracle, threads) for answer in answers)
        if times < repeats:
            raise NotAdmitted(f"{oracle} with {threads} thread(s) answered {times} of {repeats} times")
    first = answers[0]
    if not first.positions:
        raise NotAdmitted("the answer is empty")
    for other in answers[1:]:
        if why := _disagreement(first, other):
            raise NotAdmitted(f"the oracles disagree: {why}")
    for answer in answers:
        margin, index = min((p.margin or 0.0, i) for i, p in enumerate(answer.positions))
        if margin < policy.margin_floor:
            raise NotAdmitted(
                f"position {index} is decided by {margin:.4f} logits, below the floor {policy.margin_floor}"
            )
    differences = [_largest_difference(first.positions, answer.positions) for answer in answers]
    if max(differences) * policy.noise_multiple > policy.margin_floor:
        raise NotAdmitted(
            f"the oracles differ by up to {max(differences)} logits: "
            f"the floor {policy.margin_floor} is not {policy.noise_multiple:g} times that"
        )
    if len(first.token_ids) < case.max_tokens and case.kind not in ("stop", "eos"):
        raise NotAdmitted(
            f"ended after {len(first.token_ids)} tokens, which its kind {case.kind!r} does not say"
        )
    return Golden(
        schema=GOLDEN_SCHEMA,
        case=case,
        prompt_token_ids=first.prompt_token_ids,
        token_ids=first.token_ids,
        text=first.text,
        finish_reason=first.finish_reason,
        finish_cause=first.finish_cause,
        min_margin=min(_margin(answer) for answer in answers),
        provenance=Provenance(
            recorded=datetime.datetime.now(datetime.UTC).date().isoformat(),
            runs=_runs(answers, differences),
            weights_sha256=weights_sha256,
            tokenizer_hash=first.tokenizer_hash,
            template_hash=first.template_hash,
            machine=machine,
            margin_floor=policy.margin_floor,
        ),
        positions=first.positions,
    )
