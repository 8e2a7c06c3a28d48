"""Triage over engines whose every answer, and every fault, is known by hand."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from pathlib import Path

import msgspec
import numpy as np
import pytest
from counting_arms import CountingArm, Pool, Tokens
from hand_made_goldens import golden

from paritygate import policy as policies
from paritygate.arms.base import ArmError
from paritygate.case import Case, Sampler
from paritygate.compare.identity import compare
from paritygate.gates.replies import check_of
from paritygate.policy import Envelope, Policy
from paritygate.stream import Usage
from paritygate.triage import layers, nearness
from paritygate.triage.budget import Spent
from paritygate.triage.divergence import Divergence
from paritygate.triage.manifests import manifests, partition, recorded
from paritygate.triage.settings import TriagePolicy
from paritygate.triage.smallest import minimized
from paritygate.triage.triage import Triage
from paritygate.verdict import Check, Outcome, Verdict

# 3 and 7, in that order, make the faulty engine miscount: nothing else does.
PROMPT = (20, 21, 3, 11, 15, 31, 7, 13, 31, 9)
FLOOR = 0.02


def three_then_seven(tokens: Tokens) -> bool:
    return 3 in tokens and 7 in tokens[tokens.index(3) :]


def after_even(tokens: Tokens) -> bool:
    return three_then_seven(tokens) and tokens[-1] % 2 == 0


@pytest.fixture
def policy(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    monkeypatch.chdir(repository)
    return policies.load(Path())


def divergence(right: CountingArm, wrong: CountingArm, **more: object) -> Divergence:
    case = Case(name="greeting", max_tokens=6, prompt_token_ids=PROMPT)
    reference, candidate = right.generate(case), wrong.generate(case)
    found = compare(reference, candidate, floor=FLOOR)
    given = {
        "case": case, "arm": wrong.name, "reference": reference, "candidate": candidate, "against": right.name,
        "floor": FLOOR, "index": found.details.get("index"),
    }  # fmt: skip
    right.asked.clear()
    wrong.asked.clear()
    return Divergence(**(given | more))


def triaged(policy: Policy, found: Divergence, *arms: CountingArm, checks: int = 9) -> Check:
    assert found.candidate is not None
    comparison = compare(found.reference, found.candidate, floor=FLOOR)
    check = check_of("identity", f"identity/same/{found.arm}/greeting", comparison, seconds=0.0)
    told = Triage(policy, Pool(*arms, checks=checks), lambda line: None).of(check, found)
    assert (told.verdict, told.outcome, told.headline) == (check.verdict, check.outcome, check.headline)
    json.dumps(told.details)  # plain JSON, as a report needs it
    return told


def test_everything_is_told_about_a_known_fault(policy: Policy) -> None:
    right, wrong = CountingArm("fake"), CountingArm("other", after_even)
    # Right: 10 11 12 13 14 15. Fed those, the faulty one forks after 10, 12 and 14.
    told = triaged(policy, divergence(right, wrong), right, wrong).details["triage"]
    assert told["problems"] == []
    assert [(f["index"], f["reference_id"], f["arm_id"]) for f in told["reanchor"]["forks"]] == [
        (1, 11, 12), (3, 13, 14), (5, 15, 16),
    ]  # fmt: skip
    assert told["reanchor"]["forks"][0]["gaps"] == [pytest.approx(2.0), pytest.approx(2.0)]
    assert told["reanchor"]["forks"][0]["tie"] is False
    assert [token for token, _, _ in told["reanchor"]["forks"][0]["top"]["arm"]] == [12, 13]
    assert "forks at token 1 and 2 time(s) later, at all 6 positions" in told["reanchor"]["sentence"]
    # Two outcomes of probability p and q change places with others of weight 1: KL = (p - 1/Z) * 4, by hand.
    z = math.exp(4) + math.exp(2) + 38
    assert told["nearness"]["kl_max"] == pytest.approx((math.exp(4) - 1) / z * 4, rel=1e-6)
    assert told["nearness"]["kl_mean"] == pytest.approx(told["nearness"]["kl_max"] / 2)
    assert told["nearness"]["between"] == ["fake", "other"]
    assert told["nearness"]["partial"] is False
    assert told["layers"]["first"]["place"] == "layer 1, mlp"
    assert told["layers"]["first"]["max_abs"] == 0.5
    assert [tap["above"] for tap in told["layers"]["taps"]] == [False, False, True, True, True]
    # 3 and 7 in that order, and an even token last.
    smallest = told["smallest"]
    assert smallest["token_ids"] == [3, 7, 10]
    assert (smallest["of"], smallest["max_tokens"], smallest["cut_short"]) == (11, 1, "")
    assert told["manifests"]["differing"] == {}
    assert told["partition"]["differing"] == []
    assert told["reproduce"] == [
        "paritygate replay identity/same/other/greeting",
        "paritygate replay greeting --arm fake --arm other --token-ids 3,7,10 --max-tokens 1",
    ]
    assert len(told["findings"]) == 6


def test_a_fault_of_the_decode_path_is_not_blamed_on_the_network(policy: Policy) -> None:
    class Forgetful(CountingArm):
        """Its forwards are right; what it says from the third token on is not."""

        def generate(self, case: Case):
            stream = super().generate(case)
            ids = stream.token_ids or ()
            wrong = (*ids[:2], *(token + 5 for token in ids[2:]))
            return msgspec.structs.replace(stream, token_ids=wrong, positions=None)

    right, wrong = CountingArm("fake"), Forgetful("other")
    told = triaged(policy, divergence(right, wrong), right, wrong).details["triage"]
    assert told["reanchor"]["forks"] == []
    assert "other says the same at all 6 positions" in told["reanchor"]["sentence"]
    assert told["layers"]["first"] is None
    assert "the network is not at fault" in told["layers"]["sentence"]
    # At the fork alone it does not diverge; from the start of the prompt it does, and one token is enough.
    assert (len(told["smallest"]["token_ids"]), told["smallest"]["max_tokens"]) == (1, 3)


def test_arms_without_logits_are_anchored_by_prompts(policy: Policy) -> None:
    right, wrong = (
        CountingArm("fake", forced=False, tapped=False),
        CountingArm("other", after_even, forced=False, tapped=False),
    )
    told = triaged(policy, divergence(right, wrong), right, wrong).details["triage"]
    assert [f["index"] for f in told["reanchor"]["forks"]] == [1, 3, 5]
    assert told["reanchor"]["method"] == "as a prompt"
    # Prompts: from the start, then with the reference's token fed at each fork.
    assert [len(asked) for asked in wrong.asked[:3]] == [10, 12, 14]
    assert told["nearness"]["partial"] is True
    assert told["nearness"]["positions"] == 2  # up to the fork: after it the contexts differ
    assert "arm fake cannot tap its layers" in told["layers"]["sentence"]
    assert told["smallest"]["token_ids"] == [3, 7, 10]


def test_forks_by_prompts_are_bounded(policy: Policy) -> None:
    right, wrong = CountingArm("fake"), CountingArm("other", three_then_seven, forced=False)
    case = Case(name="greeting", max_tokens=12, prompt_token_ids=PROMPT)
    found = divergence(
        right, wrong, case=case, reference=right.generate(case), candidate=wrong.generate(case)
    )
    told = triaged(policy, found, right, wrong).details["triage"]["reanchor"]
    assert len(told["forks"]) == 8
    assert (told["looked_at"], told["positions"]) == (8, 12)
    assert "at 8 of 12 positions" in told["sentence"]


def test_a_drawn_answer_is_not_teacher_forced_for_its_most_likely_token(policy: Policy) -> None:
    right, wrong = CountingArm("fake"), CountingArm("other", after_even)
    case = Case(
        name="greeting", max_tokens=6, prompt_token_ids=PROMPT, sampler=Sampler(temperature=0.7, seed=1)
    )
    told = triaged(policy, divergence(right, wrong, case=case), right, wrong).details["triage"]
    assert "drawn or penalised" in told["reanchor"]["sentence"]
    assert told["smallest"]["token_ids"] == [3, 7, 10]


def test_a_golden_has_a_witness_in_place_of_its_oracles(policy: Policy) -> None:
    right, wrong = CountingArm("fake"), CountingArm("other", after_even)
    found = divergence(right, wrong, against=None, witness=lambda: "fake")
    told = triaged(policy, found, right, wrong).details["triage"]
    assert told["nearness"]["between"] == ["fake", "other"]
    golden = told["nearness"]["golden"]
    assert golden["partial"] is True
    # Merging outcomes can only lower a divergence.
    assert 0 < golden["kl_max"] <= told["nearness"]["kl_max"]
    alone = triaged(policy, dataclasses.replace(found, witness=lambda: None), right, wrong).details["triage"]
    assert alone["nearness"]["partial"] is True
    assert "no second arm" in alone["smallest"]["sentence"]
    assert "no second arm" in alone["layers"]["sentence"]


def test_a_hit_that_differs_is_reduced_on_one_arm(policy: Policy) -> None:
    class Remembering(CountingArm):
        """Warm, it miscounts where the prompt holds 3 then 7."""

        warm = False

        def generate(self, case: Case):
            self.fault = three_then_seven if self.warm else (lambda tokens: False)
            self.warm = True
            return super().generate(case)

        def reset(self) -> None:
            self.warm = False

        def repeat(self, case: Case, times: int):
            self.reset()
            return super().repeat(case, times)

    arm = Remembering("fake")
    case = Case(name="greeting", max_tokens=3, prompt_token_ids=PROMPT)
    cold, hit = arm.repeat(case, 2)
    found = Divergence(
        case=case, arm="fake", reference=cold, candidate=hit, cached=True, floor=FLOOR, index=0
    )
    comparison = compare(cold, hit, floor=FLOOR)
    check = check_of("cache", "cache/claim/fake/greeting/hit", comparison, seconds=0.0)
    told = Triage(policy, Pool(), lambda line: None).of(check, found, held=arm).details["triage"]
    assert told["problems"] == []
    assert told["smallest"]["token_ids"] == [3, 7]
    assert told["reproduce"] == [
        "paritygate replay cache/claim/fake/greeting/hit",
        "paritygate replay cache/claim/fake/greeting/hit --token-ids 3,7 --max-tokens 1",
    ]
    assert "one arm" in told["layers"]["sentence"]


def test_only_so_many_divergences_of_a_run_ask_the_arms_again(policy: Policy) -> None:
    right, wrong = CountingArm("fake"), CountingArm("other", after_even)
    told = triaged(policy, divergence(right, wrong), right, wrong, checks=0).details["triage"]
    assert (told["full"], wrong.asked) == (False, [])
    assert told["reproduce"] == ["paritygate replay identity/same/other/greeting"]
    assert "the arms were not asked again" in told["findings"][-1]
    assert "reanchor" not in told


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"seconds": -1.0}, "the -1 s of a triage were used up"),
        ({"arm_calls": 5}, "the 5 arm calls of a triage"),
    ],
)
def test_a_triage_ends_within_its_budget_and_says_so(policy: Policy, bounds: dict, why: str) -> None:
    bounded = msgspec.structs.replace(policy, triage=TriagePolicy(**bounds))
    right, wrong = CountingArm("fake"), CountingArm("other", after_even)
    told = triaged(bounded, divergence(right, wrong), right, wrong).details["triage"]
    said = " ".join([*told["problems"], *told["findings"]])
    assert why in said
    assert "the check alone" not in said
    assert told["reproduce"][0] == "paritygate replay identity/same/other/greeting"


def test_what_breaks_in_triage_is_recorded_and_changes_no_verdict(policy: Policy) -> None:
    class Broken(CountingArm):
        def logits(self, token_ids: Tokens, start: int) -> np.ndarray:
            raise ZeroDivisionError("in a kernel")

        def taps(self, token_ids: Tokens) -> dict[str, np.ndarray]:
            return {"embedding": np.zeros((1, 1), np.float32)}

    right, wrong = CountingArm("fake"), Broken("other", after_even)
    check = triaged(policy, divergence(right, wrong), right, wrong)
    assert (check.outcome, check.verdict) == (Outcome.FAIL, Verdict.DIVERGED)
    problems = check.details["triage"]["problems"]
    assert problems[0] == "reanchor: ZeroDivisionError: in a kernel"
    assert any(problem.startswith("layers: ValueError: embedding has the shape") for problem in problems)
    assert check.details["triage"]["smallest"]["token_ids"] == [3, 7, 10]


def test_arms_that_take_no_token_ids_are_told_by_name(policy: Policy) -> None:
    right, wrong = CountingArm("fake"), CountingArm("other", after_even)
    found = divergence(right, wrong)
    wrong.takes_ids = False
    pool = Pool(right, wrong)
    check = check_of("identity", "identity/same/other/greeting", compare(
        found.reference, found.candidate, floor=FLOOR), seconds=0.0)  # fmt: skip
    told = Triage(policy, pool, lambda line: None).of(check, found).details["triage"]
    assert "arm other takes no token ids" in told["smallest"]["sentence"]
    assert pool.dropped == ["other"]  # started anew before the gate uses it again


def test_minimizing_finds_the_tokens_that_matter_and_keeps_their_order() -> None:
    calls = []

    def diverges(tokens: Tokens) -> bool:
        calls.append(tokens)
        return three_then_seven(tokens)

    assert minimized(diverges, tuple(range(40))) == ((3, 7), "")
    assert len(calls) == len(set(calls))
    assert len(calls) < 60
    assert minimized(lambda tokens: 5 in tokens, (1, 5)) == ((5,), "")


def test_minimizing_that_is_cut_short_gives_what_it_has() -> None:
    left = [7]

    def diverges(tokens: Tokens) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise Spent("no calls left")
        return three_then_seven(tokens)

    smallest, why = minimized(diverges, tuple(range(40)))
    assert why == "no calls left"
    assert len(smallest) < 40
    assert three_then_seven(smallest)


def test_every_differing_setting_is_listed_with_its_kind(stream) -> None:
    one = stream(
        [1],
        arm="one",
        manifest={
            "backend": "torch",
            "sampling": {"temperature": 0, "seed": 1},
            "version": "1",
            "grammar_hash": "00",
            "template_hash": None,
        },
    )
    two = stream(
        [1],
        arm="two",
        manifest={
            "backend": "mlx",
            "sampling": {"temperature": 0, "seed": 2},
            "version": "2",
            "libraries": {"mlx": "3"},
        },
    )
    found = manifests(one, two)
    assert found["differing"] == {
        "backend": {"kind": "decides how it is computed", "reference": "torch", "candidate": "mlx"},
        "version": {"kind": "other", "reference": "1", "candidate": "2"},
    }
    assert found["untold"] == {"one": ["libraries.mlx"], "two": ["grammar_hash"]}
    assert found["sentence"] == (
        "settings that differ: backend (torch / mlx), version (1 / 2); not told by one: libraries.mlx; "
        "not told by two: grammar_hash"
    )
    # What is None on one side is not told there, and a key that neither knows is nobody's.
    half = [
        stream([1], arm=arm, manifest={"a": 1, "b": b, "c": None}) for arm, b in (("one", None), ("two", 2))
    ]
    for sides, lacking in ((half, "one"), (half[::-1], "one")):
        found = manifests(*sides)
        assert (found["differing"], found["untold"]) == ({}, {lacking: ["b"]})
        assert found["sentence"] == "settings: all 1 that both tell are alike; not told by one: b"
    # One engine's None is a value that it resolved.
    own = [
        stream([1], arm=arm, manifest={"engine": "e", "allowed": a})
        for arm, a in (("one", None), ("two", [3]))
    ]
    assert manifests(*own)["sentence"] == "settings that differ: allowed (None / [3])"
    many = stream([1], arm="two", manifest={"a": 1} | {f"k{i}": i for i in range(8)})
    assert manifests(half[0], many)["sentence"].endswith("not told by one: k0, k1, k2, k3, k4, k5 and 2 more")
    warm = [stream([1], manifest={"sampling": {"temperature": 0.5, "seed": seed}}) for seed in (1, 2)]
    assert list(manifests(*warm)["differing"]) == ["sampling.seed"]
    assert "tells none" in manifests(one, stream([1]))["sentence"]


def test_a_golden_is_compared_by_the_libraries_that_made_it(stream) -> None:
    made = golden(versions={"torch": "2", "tokenizers": "1", "transformers": "5", "mlx-lm": "6"}).provenance
    told = recorded(
        made, stream([1], manifest={"libraries": {"torch": "3", "tokenizers": "1", "numpy": "2"}})
    )
    assert told["differing"] == {"libraries.torch": {"kind": "other", "reference": "2", "candidate": "3"}}
    assert told["sentence"] == (
        "settings: the golden is by transformers 5 and mlx-lm 6; libraries that differ: torch (2 / 3)"
    )


def test_a_held_arm_that_fails_is_started_again(policy: Policy) -> None:
    class Fragile(CountingArm):
        opened, closed = 0, 0

        def repeat(self, case: Case, times: int):
            raise ArmError("it hung")

        def open(self) -> None:
            self.opened += 1

        def close(self) -> None:
            self.closed += 1

    arm = Fragile("other", after_even)
    found = dataclasses.replace(divergence(CountingArm("fake"), arm), cached=True, against=None)
    assert found.candidate is not None
    comparison = compare(found.reference, found.candidate, floor=FLOOR)
    check = check_of("cache", "cache/c/other/greeting/hit", comparison, seconds=0.0)
    told = Triage(policy, Pool(), lambda line: None).of(check, found, held=arm)
    assert (arm.opened, arm.closed) == (1, 1)
    assert "it hung" in told.details["triage"]["smallest"]["sentence"]


def test_the_partition_is_compared_by_counters(stream) -> None:
    one = stream([1], counters={"prefill_pieces": [[0, 3]], "max_rows": 1})
    two = stream([1], counters={"prefill_pieces": [[0, 2], [2, 3]], "max_rows": 1})
    told = partition(one, two)
    assert told["differing"] == ["prefill_pieces"]
    assert told["sentence"] == "prefill_pieces differ: [[0, 3]] and [[0, 2], [2, 3]]"
    hit = stream([1], counters={"prefill_pieces": [[2, 3]], "cached_tokens": 2, "max_rows": 1},
                 usage=Usage(prompt_tokens=3, completion_tokens=1, total_tokens=4, cached_tokens=2))  # fmt: skip
    cold = stream([1], counters=two.counters | {"cached_tokens": 0})
    assert partition(cold, hit, cached=True)["differing"] == []
    wrong = stream([1], counters={"prefill_pieces": [[1, 3]], "cached_tokens": 2}, usage=hit.usage)
    assert "went on at 1: 1 fed twice" in partition(cold, wrong, cached=True)["sentence"]
    assert "counts no work" in partition(one, stream([1]))["sentence"]


def test_a_coarse_divergence_by_hand() -> None:
    half, quarter = math.log(0.5), math.log(0.25)
    # Shared: token 1. The rest is 1/2 against 3/4.
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert nearness.coarse_kl({1: half, 2: quarter}, {1: quarter, 3: half}) == pytest.approx(expected)
    assert nearness.coarse_kl({1: half}, {1: half}) == 0


def test_what_repeats_and_the_envelope_explain_is_no_first_difference() -> None:
    def taps(noise: float, planted: float = 0.0) -> dict[str, np.ndarray]:
        base = {
            "embedding": np.ones((3, 2), np.float32),
            "layers.0.attention": np.full((3, 2), 10, np.float32),
        }
        base["layers.0.attention"][1, 0] += noise
        base["layers.0.attention"][2, 1] += planted
        return base

    one, other = (taps(0), taps(0.25)), (taps(0.25), taps(0))
    assert not any(tap.above for tap in layers.taps_of(one, other, 0.0))  # its own repeats differ as much
    (_, tap) = layers.taps_of((taps(0), taps(0)), (taps(0.25), taps(0.25)), 0.0)
    assert (tap.above, tap.at, tap.max_abs) == (True, 1, 0.25)
    assert not any(tap.above for tap in layers.taps_of((taps(0), taps(0)), (taps(0.25), taps(0.25)), 0.03))
    # Noise that is explained does not hide what is planted at another position.
    (_, tap) = layers.taps_of((taps(0), taps(0.25)), (taps(0.25, 0.125), taps(0, 0.125)), 0.0)
    assert (tap.above, tap.at, tap.max_abs) == (True, 2, 0.125)
    nan = {"embedding": np.full((3, 2), np.nan, np.float32)}
    assert layers.taps_of((taps(0), taps(0)), (nan, nan), 1.0)[0].above


def test_the_envelope_is_a_share_of_the_largest_logit() -> None:
    assert layers.share_of(0.5, np.asarray([[1.0, -20.0]])) == 0.2
    assert layers.share_of(None, np.asarray([[1.0]])) == 0


def test_the_registered_envelope_reaches_the_layers(policy: Policy) -> None:
    right, wrong = CountingArm("fake"), CountingArm("other", after_even)
    wide = Envelope(kl_mean=1, kl_max=1, max_abs_logit=40.0, reason="by hand")
    told = triaged(policy, divergence(right, wrong, envelope=wide), right, wrong).details["triage"]
    assert told["layers"]["share"] == 80.0  # 8 times 40 of the largest logit, 4
    assert told["layers"]["first"] is None


def test_commands_can_be_split_by_a_shell(policy: Policy) -> None:
    right, wrong = CountingArm("fake"), CountingArm("other", after_even)
    check = check_of("golden", "golden/other/a name", compare(
        *[arm.generate(Case(name="a name", max_tokens=6, prompt_token_ids=PROMPT)) for arm in (right, wrong)],
        floor=FLOOR), seconds=0.0)  # fmt: skip
    told = Triage(policy, Pool(right, wrong, checks=0), lambda line: None).of(check, divergence(right, wrong))
    (command,) = told.details["triage"]["reproduce"]
    assert shlex.split(command) == ["paritygate", "golden", "replay", "a name", "--arm", "other"]
