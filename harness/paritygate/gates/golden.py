"""The golden gate: the store is sound, and each arm says what the oracles said."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paritygate.arms.base import Arm, ArmError
from paritygate.compare.comparison import Comparison
from paritygate.compare.context import too_short
from paritygate.compare.identity import compare
from paritygate.compare.logprobs import LogprobDifference, largest_difference
from paritygate.compare.ties import reanchor
from paritygate.compare.work import work_of
from paritygate.gates.arm_pool import ArmPool, pool_of
from paritygate.gates.lanes import side_by_side
from paritygate.gates.replies import check_of, could_not_run, unless_unsteady
from paritygate.golden.store import Golden, GoldenError, Store
from paritygate.golden.survey import survey
from paritygate.policy import GoldenClaim, Policy
from paritygate.stream import Stream
from paritygate.triage.divergence import Divergence
from paritygate.triage.triage import TRIAGED, Triage, witness_of
from paritygate.verdict import Check, Outcome, Verdict

GATE = "golden"
FAILURES_IN_A_ROW = 2  # an arm that failed so often is not waited for again


def store_check(policy: Policy, root: Path) -> Check:
    """Whether every golden has its case and a claim; it reads every file of the store."""
    found = survey(policy, root)
    waiting = f", {len(found.pending)} pending" if found.pending else ""
    if found.faults:
        return Check(
            GATE, "golden/store", Outcome.FAIL, Verdict.BROKEN, "; ".join(found.faults), found.to_json()
        )
    headline = f"{len(found.accepted)} goldens, {found.tokens} tokens{waiting}: each has its case and a claim"
    return Check(GATE, "golden/store", Outcome.PASS, Verdict.HELD, headline, found.to_json())


def same_weights(golden: Golden, stream: Stream) -> bool:
    """Whether the arm ran the weights of the golden: a manifest names their sha256, or one over the files' digests."""
    told = stream.manifest.get("weights_hash")
    digest = golden.provenance.weights_sha256
    return told is None or told in (digest, hashlib.sha256(bytes.fromhex(digest)).hexdigest())


def judge(arm: Arm, golden: Golden, policy: Policy) -> tuple[Comparison, Stream]:
    """Replay one golden through an arm. Raises ArmError."""
    floor, case = policy.goldens.margin_floor, golden.case
    if arm.capabilities.resets:
        arm.reset()
    stream = arm.generate(case)
    reference = golden.as_stream()
    if not same_weights(golden, stream):
        what = "the arm ran other weights than the golden was recorded from"
        return Comparison(Verdict.SETUP_ERROR, what, {"manifest": stream.manifest}), stream
    if short := too_short(case, stream):
        return short, stream
    found = unless_unsteady(compare(reference, stream, floor=floor), arm, case, stream, floor=floor)
    if found.verdict in (Verdict.DIVERGED, Verdict.LENGTH) and arm.capabilities.teacher_forcing:
        anchored = reanchor(arm, reference, floor)
        verdict: Verdict = found.verdict
        if anchored.forks and anchored.all_ties and found.details.get("decided") is False:
            verdict = Verdict.TIE_BREAK
        found = Comparison(
            verdict,
            f"{found.headline}; {anchored.sentence()}",
            found.details | {"reanchored": anchored.evidence()},
        )
    return found, stream


@dataclass(frozen=True)
class _Measured:
    """An answer that is its golden's, and where its logprobs lie farthest from it."""

    golden: Golden
    stream: Stream
    apart: LogprobDifference


class _Replay:
    """One claim on one arm: a check for every golden, and one for how near the logprobs are."""

    def __init__(
        self,
        policy: Policy,
        store: Store,
        claim_name: str,
        claim: GoldenClaim,
        name: str,
        arms: ArmPool,
        triage: Triage,
    ) -> None:
        self.policy = policy
        self.store = store
        self.claim = claim
        self.name = name
        # Another claim may hold the arm to other goldens: what is said of all of a claim's carries its name.
        self.all_of_it = f"golden/{name}/{claim_name}"
        self.arms = arms
        self.triage = triage

    def checks(self, cases: tuple[str, ...], progress: Callable[[str], None]) -> Iterator[Check]:
        measured: list[_Measured] = []
        streams: list[Stream] = []
        failures = 0
        for number, case in enumerate(cases, 1):
            progress(f"golden: {self.name} {number}/{len(cases)} {case}")
            check_name, started = f"golden/{self.name}/{case}", time.monotonic()
            try:
                golden = self.store.load(case)
                with self.arms.use(self.name) as arm:
                    found, stream = judge(arm, golden, self.policy)
            except GoldenError as error:
                yield Check(GATE, check_name, Outcome.FAIL, Verdict.NOT_RUN, str(error))
                continue
            except ArmError as error:
                self.arms.drop(self.name)
                yield could_not_run(GATE, check_name, error, time.monotonic() - started)
                failures += 1
                if failures == FAILURES_IN_A_ROW and number < len(cases):
                    yield Check(
                        GATE,
                        f"{self.all_of_it}/remaining",
                        Outcome.COULD_NOT_RUN,
                        Verdict.NOT_RUN,
                        f"{len(cases) - number} more cases were not tried: {self.name} failed {failures} times",
                        {"cases": list(cases[number:])},
                    )
                    return
                continue
            failures = 0
            streams.append(stream)
            apart = largest_difference(golden.as_stream(), stream)
            if apart is not None and found.verdict is Verdict.IDENTICAL:
                measured.append(_Measured(golden, stream, apart))
            check = check_of(
                GATE,
                check_name,
                found,
                seconds=time.monotonic() - started,
                passing=self.claim.passing,
                logprob_distance=None if apart is None else apart.distance,
                min_margin=golden.min_margin,
                counters=stream.counters,
                manifests={self.name: stream.manifest},
            )
            if found.verdict in TRIAGED:
                check = self.triage.of(check, self._divergence(golden, stream, found.details.get("index")))
            yield check
        if self.claim.envelope:
            yield self._distance_check(measured, answered=bool(streams))
        if work := work_of(streams):
            yield check_of(GATE, f"{self.all_of_it}/work", work, seconds=0.0, passing=(Verdict.HELD,))

    def _divergence(self, golden: Golden, stream: Stream, index: int | None) -> Divergence:
        return Divergence(
            case=golden.case,
            arm=self.name,
            reference=golden.as_stream(),
            candidate=stream,
            witness=witness_of(self.policy, self.name, self.claim.arms),
            envelope=self.policy.envelopes.get(self.claim.envelope),
            floor=self.policy.goldens.margin_floor,
            index=index,
            recorded=golden.provenance,
        )

    def _distance_check(self, measured: list[_Measured], *, answered: bool) -> Check:
        limit = self.policy.envelopes[self.claim.envelope].max_abs_logit
        name = f"{self.all_of_it}/logprobs"
        if not measured:
            what = "no answer could be measured against a golden's logprobs"
            # An arm that gave no answer at all measured nothing: that is its setup's fault, said beside this.
            outcome = Outcome.FAIL if answered else Outcome.COULD_NOT_RUN
            return Check(GATE, name, outcome, Verdict.NOT_RUN, what)
        worst = max(measured, key=lambda one: one.apart.distance)
        largest, case = worst.apart.distance, worst.golden.case.name
        details = {
            "largest": largest,
            "limit": limit,
            "by_case": {one.golden.case.name: one.apart.distance for one in measured},
            "worst": {"case": case} | worst.apart.to_json(),
        }
        if largest <= limit:
            headline = (
                f"top logprobs lie within {largest:.2g} of the oracle's over {len(measured)} answers "
                f"(largest in {case}; the envelope is {limit:g})"
            )
            return Check(GATE, name, Outcome.PASS, Verdict.WITHIN_ENVELOPE, headline, details)
        outside = sum(not one.apart.distance <= limit for one in measured)
        headline = (
            f"the golden's tokens, but logprobs outside the envelope {self.claim.envelope!r} in {outside} of "
            f"{len(measured)} answers; the worst is {case}: {worst.apart.outside(limit)}"
        )
        check = Check(GATE, name, Outcome.FAIL, Verdict.DIVERGED, headline, details)
        return self.triage.of(check, self._divergence(worst.golden, worst.stream, worst.apart.index))


def run(
    policy: Policy, root: Path, progress: Callable[[str], None], arms: ArmPool | None = None
) -> Iterator[Check]:
    """Every golden claim, its arms side by side."""
    claims = {name: claim for name, claim in policy.claims.items() if isinstance(claim, GoldenClaim)}
    store = Store(root / policy.goldens.directory)
    every = tuple(case.name for case in policy.golden_cases(root))
    with pool_of(policy, arms) as pool:
        triage = Triage(policy, pool, progress)
        jobs = [
            (_Replay(policy, store, name, claim, arm, pool, triage), claim.cases or every)
            for name, claim in claims.items()
            for arm in claim.arms
        ]
        yield from side_by_side([partial(replay.checks, names, progress) for replay, names in jobs])
