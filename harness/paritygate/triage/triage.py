"""Looks into a divergence: settings, forks, distances, layers, the smallest prompt, and how to see it again.

Whatever happens here, the check keeps its verdict: what breaks is recorded beside what was found.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from paritygate.arms.base import Arm, ArmError, TappedArm
from paritygate.arms.registry import arm_class
from paritygate.gates.arm_pool import ArmPool
from paritygate.policy import Policy
from paritygate.triage import layers, nearness
from paritygate.triage.anchors import by_prompting, by_teacher_forcing, spellings
from paritygate.triage.budget import Budget, Spent
from paritygate.triage.command import commands
from paritygate.triage.divergence import Divergence, Use
from paritygate.triage.manifests import manifests, partition, recorded
from paritygate.triage.smallest import smallest_prompt
from paritygate.verdict import Check, Verdict

TRIAGE_SCHEMA = 1
TRIAGED = (Verdict.DIVERGED, Verdict.LENGTH)
# Every array of a forward over more tokens than this is more than is worth holding.
TAPPED_TOKENS = 320

Progress = Callable[[str], None]


def witness_of(policy: Policy, arm: str, preferred: tuple[str, ...] = ()) -> Callable[[], str | None]:
    """Finds another arm that can be teacher-forced, to ask what a golden's oracles cannot be asked any more."""

    def witness() -> str | None:
        own = policy.arms[arm]
        for name in (*preferred, *(name for name in policy.arms if name not in preferred)):
            spec = policy.arms[name]
            told = getattr(arm_class(spec.kind), "capabilities", None)
            if (spec.kind, spec.options) != (own.kind, own.options) and getattr(
                told, "teacher_forcing", False
            ):
                return name
        return None

    return witness


class Triage:
    """The triage of one gate's run."""

    def __init__(self, policy: Policy, arms: ArmPool, progress: Progress) -> None:
        self._policy, self._arms, self._progress = policy, arms, progress

    def of(self, check: Check, found: Divergence, *, held: Arm | None = None) -> Check:
        """The check with `details["triage"]`. The caller holds no arm but `held`, whose name is `found.arm`."""
        if check.verdict not in TRIAGED:
            return check
        budget = Budget(self._policy.triage.seconds, self._policy.triage.arm_calls)
        inquiry = _Inquiry(self._policy, check.name, found, self._use(found, held), budget, self._progress)
        try:
            told = inquiry.told(full=self._arms.allowance.take())
        except Exception as error:  # the boundary that keeps a red red
            told = {"schema": TRIAGE_SCHEMA, "problems": [f"triage: {type(error).__name__}: {error}"]}
        return dataclasses.replace(
            check, details=check.details | {"triage": told}, seconds=check.seconds + budget.elapsed
        )

    def _use(self, found: Divergence, held: Arm | None) -> Use:
        @contextlib.contextmanager
        def use(name: str) -> Iterator[Arm]:
            if held is not None and name == found.arm:
                try:
                    yield held
                except ArmError:
                    with contextlib.suppress(ArmError):
                        held.close()
                        held.open()  # the gate's next case asks it again
                    raise
                return
            try:
                with self._arms.use(name) as arm:
                    yield arm
            except ArmError:
                self._arms.drop(name)  # the gate's next case starts it again
                raise

        return use


class _Inquiry:
    def __init__(
        self, policy: Policy, check: str, found: Divergence, use: Use, budget: Budget, progress: Progress
    ) -> None:
        self._policy, self._check, self._found, self._use = policy, check, found, use
        self._budget, self._progress = budget, progress
        self._told: dict[str, Any] = {"schema": TRIAGE_SCHEMA, "full": False}
        self._problems: list[str] = []
        self._logits: np.ndarray | None = None  # of `found.arm`, over the reference's tokens

    def told(self, *, full: bool) -> dict[str, Any]:
        found, told = self._found, self._told
        if (candidate := found.candidate) is not None:
            made = found.recorded
            self._step(
                "manifests",
                lambda: recorded(made, candidate) if made else manifests(found.reference, candidate),
            )
            self._step("partition", lambda: partition(found.reference, candidate, cached=found.cached))
        if full:
            told["full"] = True
            tapping, search = ("layers", self._layers), ("smallest", self._smallest)
            for name, step in (
                ("reanchor", self._reanchor),
                ("nearness", self._nearness),
                # The longest search comes last, but where only its result is short enough to be tapped.
                *((tapping, search) if self._fork_tokens() else (search, tapping)),
            ):
                self._progress(f"triage: {self._check} {name}")
                self._step(name, step)
        told["reproduce"] = []
        with self._kept("reproduce"):
            told["reproduce"] = commands(found, self._policy, self._check, told.get("smallest"))
        self._say(full)
        return told

    def _say(self, full: bool) -> None:
        told = self._told
        told["findings"] = [
            told[name]["sentence"]
            for name in ("manifests", "partition", "reanchor", "nearness", "layers", "smallest")
            if told.get(name)
        ]
        if not full:
            again = self._policy.invocation.command("replay", self._check, "--triage")
            told["findings"].append(
                f"the arms were not asked again: {self._policy.triage.checks} other divergence(s) of this run were "
                f"looked into before; run `{again}`, or raise [triage] checks"
            )
        told["problems"] = self._problems
        told["seconds"] = round(self._budget.elapsed, 3)

    @contextlib.contextmanager
    def _kept(self, name: str) -> Iterator[None]:
        """Records what goes wrong: an explanation that fails must not hide what it explains."""
        try:
            yield
        except Spent as why:
            self._problems.append(f"{name}: not reached, {why}")
        except ArmError as error:
            self._problems.append(f"{name}: {error}")
        except Exception as error:  # the boundary that owns the explanation
            self._problems.append(f"{name}: {type(error).__name__}: {error}")

    def _step(self, name: str, step: Callable[[], dict[str, Any] | None]) -> None:
        with self._kept(name):
            if (told := step()) is not None:
                self._told[name] = told

    def _forced(self, name: str) -> np.ndarray | None:
        """Teacher-forced logits over the reference's tokens; None where the arm gives none."""
        found = self._found
        with self._use(name) as arm:
            if not arm.capabilities.teacher_forcing:
                return None
            self._budget.call()
            return arm.logits(found.prompt + found.said[:-1], len(found.prompt) - 1)

    def _reanchor(self) -> dict[str, Any]:
        found = self._found
        if not found.prompt or not found.said:
            return {"sentence": "re-anchoring: not done, the reference tells no tokens"}
        if not found.greedy:
            return {
                "sentence": "re-anchoring: not done, the answer is drawn or penalised, not the most likely one"
            }
        self._logits = self._forced(found.arm)
        if self._logits is not None:
            return by_teacher_forcing(found, self._logits)
        with self._use(found.arm) as arm:
            return by_prompting(found, arm, self._budget)

    def _nearness(self) -> dict[str, Any]:
        found = self._found
        logits = self._logits
        golden = found.against is None and not found.cached
        if found.prompt and found.said and not found.cached:
            logits = self._forced(found.arm) if logits is None else logits
            other = None if found.other is None or logits is None else self._forced(found.other)
            if logits is not None and other is not None and found.other is not None:
                told = nearness.of_logits((found.other, found.arm), other, logits)
                if golden:
                    told |= self._against_golden(logits)
                return told
        recorded = None
        if golden and logits is not None:
            recorded = nearness.of_recorded((found.reference.arm, found.arm), found.reference, logits)
        elif found.candidate is not None:
            names = (found.reference.arm, found.candidate.arm)
            if found.cached:
                names = ("cold", "hit")
            recorded = nearness.of_streams(names, found.reference, found.candidate)
        return recorded or {
            "sentence": "KL: not compared, the two sides tell neither logits nor top logprobs"
        }

    def _against_golden(self, logits: np.ndarray) -> dict[str, Any]:
        found = self._found
        recorded = nearness.of_recorded((found.reference.arm, found.arm), found.reference, logits)
        return {"golden": recorded} if recorded else {}

    def _smallest(self) -> dict[str, Any]:
        if self._found.same_answer:
            return {"sentence": "smallest prompt: not searched, both sides say the same tokens"}
        names = spellings(self._found.reference, self._found.candidate)
        return smallest_prompt(self._found, self._use, self._budget, names)

    def _layers(self) -> dict[str, Any]:
        found = self._found
        if found.cached:
            return {"sentence": "layers: not compared, both sides are one arm: its forward is the same"}
        if found.other is None:
            return {"sentence": "layers: not compared, no second arm can be asked"}
        tokens = self._tapped_tokens()
        if not tokens:
            return {
                "sentence": f"layers: not compared, no prompt of at most {TAPPED_TOKENS} tokens is known to diverge"
            }
        pairs = []
        for name in (found.other, found.arm):
            with self._use(name) as arm:
                if not arm.capabilities.layer_taps:
                    return {"sentence": f"layers: not compared, arm {name} cannot tap its layers"}
                self._budget.call()
                tapped = cast(TappedArm, arm)
                pairs.append((tapped.taps(tokens), tapped.taps(tokens)))
        head = pairs[0][0].get("head")
        share = layers.share_of(found.envelope.max_abs_logit if found.envelope else None, head)
        if not share and self._compute_otherwise(found.other, found.arm):
            share = layers.BETWEEN_ENGINES
        taps = layers.taps_of(pairs[0], pairs[1], share)
        return layers.first_difference((found.other, found.arm), taps, len(tokens), share)

    def _fork_tokens(self) -> tuple[int, ...]:
        """What is fed at the fork, () where it is too much to tap."""
        found = self._found
        index = len(found.said) - 1 if found.index is None else found.index
        tokens = found.prompt + found.said[: max(index, 0)]
        return tokens if len(tokens) <= TAPPED_TOKENS else ()

    def _compute_otherwise(self, one: str, other: str) -> bool:
        """Whether two arms are different engines or backends, which round differently even where both are right."""
        arms = [self._policy.arms[name] for name in (one, other)]
        return len({(arm.kind, arm.options.get("backend")) for arm in arms}) > 1

    def _tapped_tokens(self) -> tuple[int, ...]:
        """What is fed at the fork, or the smallest prompt where that is long."""
        smallest = self._told.get("smallest", {}).get("token_ids") or ()
        return self._fork_tokens() or (tuple(smallest) if len(smallest) <= TAPPED_TOKENS else ())
