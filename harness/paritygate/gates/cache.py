"""The cache gate: what a hit says is what a cold run says, byte for byte, and the hit did reuse something."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paritygate.arms.base import Arm, ArmError, RowFailed
from paritygate.case import Case
from paritygate.compare.comparison import Comparison
from paritygate.compare.context import too_short
from paritygate.compare.identity import EXECUTION, SETTINGS, compare
from paritygate.compare.reuse import given_up, partition_fault, reused, too_far
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.claims import every_arm
from paritygate.gates.replies import REPEATS, check_of, could_not_run, unsteady
from paritygate.policy import CacheClaim, Policy
from paritygate.policy.claims import cache_scenario
from paritygate.stream import Stream
from paritygate.triage.divergence import Divergence
from paritygate.triage.triage import Triage
from paritygate.verdict import Check, Outcome, Verdict

GATE = "cache"


@dataclass(frozen=True)
class Scenario:
    """`asked` is run cold; then, in an engine that remembers nothing, `before`, and `asked` once per name in `hits`.

    With a `crowd` the cold run is what is remembered, and those prompts come between it and the others.
    """

    name: str
    asked: Case
    before: Case | None
    hits: tuple[str, ...]
    crowd: tuple[Case, ...] = ()


def _bounded(case: Case, tokens: int) -> Case:
    return msgspec.structs.replace(case, max_tokens=min(case.max_tokens, tokens))


def _before_last_turn(case: Case) -> Case:
    """The conversation up to the user message before the last."""
    messages = case.messages or ()
    users = [i for i, message in enumerate(messages) if message.role == "user"]
    if len(users) < 2:
        raise ArmError(f"case {case.name} has no second turn")
    return msgspec.structs.replace(
        case, name=f"{case.name} (earlier turn)", messages=messages[: users[-2] + 1]
    )


def _told(case: Case, arm: Arm) -> tuple[int, ...] | None:
    """The ids of the case's prompt."""
    return arm.repeat(msgspec.structs.replace(case, max_tokens=1), 1)[0].prompt_token_ids


def _crowd(case: Case, claim: CacheClaim, arm: Arm) -> tuple[Case, ...]:
    """Prompts of the case's tokens that begin further on: as long, and with no beginning in common."""
    tokens = _told(case, arm)
    if tokens is None or len(tokens) <= claim.crowd:
        raise ArmError(f"case {case.name} is too short for a crowd of {claim.crowd}, or its ids are not told")
    turned = (tokens[start:] + tokens[:start] for start in range(1, claim.crowd + 1))
    one = msgspec.structs.replace(case, max_tokens=1)
    return tuple(one.with_token_ids(ids, name=f"{case.name}-crowd") for ids in turned if ids[0] != tokens[0])


def _cut(case: Case, claim: CacheClaim, arm: Arm) -> Case:
    """The case over the first `shorter_tokens` of its prompt, whose ids the arm tells."""
    tokens = _told(case, arm)
    if tokens is None or len(tokens) <= claim.shorter_tokens or claim.shorter_tokens < 3:
        raise ArmError(
            f"case {case.name} cannot be cut to {claim.shorter_tokens} tokens, or its ids are not told"
        )
    return _bounded(case, claim.max_tokens).with_token_ids(
        tokens[: claim.shorter_tokens], name=f"{case.name}-cut"
    )


def scenarios(claim: CacheClaim, cases: dict[str, Case], arm: Arm) -> Iterator[Scenario]:
    """What the claim asks of an arm."""
    for name in claim.repeat:
        yield Scenario(
            cache_scenario("repeat", name),
            _bounded(cases[name], claim.max_tokens),
            None,
            ("hit", "second-hit"),
        )
    for name in claim.turns:
        case = _bounded(cases[name], claim.max_tokens)
        yield Scenario(cache_scenario("turns", name), case, _before_last_turn(case), ("hit",))
    for name in claim.shorter_after_longer:
        longer, shorter = _bounded(cases[name], claim.max_tokens), _cut(cases[name], claim, arm)
        yield Scenario(cache_scenario("shorter_after_longer", name), shorter, longer, ("hit",))
    for name in claim.changed_end:
        cut = _cut(cases[name], claim, arm)
        tokens = cut.prompt_token_ids or ()
        other = next(token for token in tokens if token != tokens[-2])
        changed = cut.with_token_ids((*tokens[:-2], other, tokens[-1]), name=f"{name}-changed")
        yield Scenario(cache_scenario("changed_end", name), changed, cut, ("hit",))
    for name in claim.evicted:
        case = _bounded(cases[name], claim.max_tokens)
        crowd = _crowd(case, claim, arm)
        yield Scenario(cache_scenario("evicted", name), case, None, ("again", "hit"), crowd)


def _played(arm: Arm, scenario: Scenario) -> tuple[Stream, Stream, list[Stream]]:
    """The cold run, the run whose state the hits may adopt, and the hits."""
    if scenario.crowd:
        cold = arm.repeat(scenario.asked, 1)[0]
        for case in scenario.crowd:
            arm.generate(case)
        return cold, cold, [arm.generate(scenario.asked) for _ in scenario.hits]
    if scenario.before is None:
        cold, *hits = arm.repeat(scenario.asked, 1 + len(scenario.hits))
        return cold, cold, hits
    cold = arm.repeat(scenario.asked, 1)[0]
    arm.reset()
    before = arm.generate(scenario.before)
    try:
        return cold, before, [arm.generate(scenario.asked) for _ in scenario.hits]
    except RowFailed as error:
        what = f"cold it answers, with state to reuse it fails: {error.what}"
        raise RowFailed(what, error.printed) from error


def explain(arm: Arm, scenario: Scenario, hit: Stream) -> str:
    """Whether the hit says what a cold run says of the prompt with a token fed twice, or left out, where it resumed."""
    prompt, at = hit.prompt_token_ids, hit.usage.cached_tokens if hit.usage is not None else None
    if prompt is None or at is None or not 0 < at < len(prompt):
        return ""
    for what, changed in (
        (f"as if token {at} of the prompt had been fed twice: one token too many was reused",
         prompt[: at + 1] + prompt[at:]),
        (f"as if token {at - 1} of the prompt had been fed twice", prompt[:at] + prompt[at - 1 :]),
        (f"as if token {at} of the prompt had been left out: one token too many was reused",
         prompt[:at] + prompt[at + 1 :]),
        (f"as if token {at - 1} of the prompt had been left out", prompt[: at - 1] + prompt[at:]),
    ):  # fmt: skip
        told = arm.repeat(scenario.asked.with_token_ids(changed), 1)[0]
        if told.token_ids and told.token_ids == hit.token_ids:
            return f"the hit answers {what}"
    return ""


def _judged(
    arm: Arm, scenario: Scenario, cold: Stream, before: Stream, hit: Stream, reuse: Comparison, floor: float
) -> Comparison:
    # A cold run that asks again says the same logprobs, so a hit, which runs the same forwards, must too.
    found = too_short(scenario.asked, cold, hit) or compare(
        cold, hit, floor=floor, settings=SETTINGS + EXECUTION, exact_logprobs=True
    )
    details = found.details | {"reuse": reuse.details}
    if found.verdict in (Verdict.DIVERGED, Verdict.LENGTH):
        for _ in range(REPEATS):
            again = compare(cold, arm.repeat(scenario.asked, 1)[0], floor=floor, exact_logprobs=True)
            if again.verdict is not Verdict.IDENTICAL:
                return unsteady(found, arm, again)
        why = [
            too_far(before, hit) or partition_fault(cold, hit),
            explain(arm, scenario, hit),
            f"the hit reused {reuse.details['cached_tokens'][1]} tokens and ran {reuse.details['prefill_pieces'][1]}",
            f"the hit does not say what the cold run says: {found.headline}",
        ]
        return Comparison(found.verdict, "; ".join(part for part in why if part), details)
    if found.verdict is not Verdict.IDENTICAL:
        return Comparison(found.verdict, found.headline, details)
    if fault := too_far(before, hit):
        return Comparison(Verdict.BROKEN, fault, details)
    if reuse.verdict is not Verdict.HELD:
        return Comparison(reuse.verdict, reuse.headline, details)
    return Comparison(found.verdict, f"{found.headline}; {reuse.headline}", details)


def _checks(
    claim_name: str,
    claim: CacheClaim,
    arm_name: str,
    cases: dict[str, Case],
    policy: Policy,
    arms: ArmPool,
    progress: Callable[[str], None],
) -> Iterator[Check]:
    prefix = f"cache/{claim_name}/{arm_name}"
    found_any = False
    triage = Triage(policy, arms, progress)
    try:
        with arms.use(arm_name) as arm:
            for scenario in scenarios(claim, cases, arm):
                found_any = True
                progress(f"cache: {arm_name} {scenario.name}")
                yield from _scenario_checks(prefix, scenario, arm, policy.goldens.margin_floor, triage)
    except ArmError as error:
        arms.drop(arm_name)
        yield could_not_run(GATE, f"{prefix}/setup", error)
        return
    if not found_any:
        what = "the claim names no case: nothing was compared"
        yield Check(GATE, f"{prefix}/setup", Outcome.FAIL, Verdict.NOT_RUN, what)


def _scenario_checks(
    prefix: str, scenario: Scenario, arm: Arm, floor: float, triage: Triage
) -> Iterator[Check]:
    started = time.monotonic()
    try:
        cold, before, hits = _played(arm, scenario)
    except RowFailed as error:
        yield could_not_run(GATE, f"{prefix}/{scenario.name}", error, time.monotonic() - started)
        return
    for label, hit in zip(scenario.hits, hits, strict=True):
        reuse = given_up(hit, hits[-1]) if label == "again" else reused(cold, hit)
        found = _judged(arm, scenario, cold, before, hit, reuse, floor)
        check = check_of(GATE, f"{prefix}/{scenario.name}/{label}", found, seconds=time.monotonic() - started)
        divergence = Divergence(
            case=scenario.asked,
            arm=arm.name,
            reference=cold,
            candidate=hit,
            cached=True,
            before=scenario.before,
            floor=floor,
            index=found.details.get("index"),
        )
        yield triage.of(check, divergence, held=arm)
        started = time.monotonic()


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every cache claim, its arms side by side."""
    cases = policy.all_cases(root)

    def checks(name: str, claim: CacheClaim, arm: str, pool: ArmPool) -> Iterator[Check]:
        return _checks(name, claim, arm, cases, policy, pool, progress)

    yield from every_arm(policy, CacheClaim, arms, checks)
