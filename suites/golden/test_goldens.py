"""The goldens of this repository: what they cover, who computed them, and a few of them through the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from paritygate import policy as policies
from paritygate.gates.arm_pool import ArmPool
from paritygate.gates.golden import judge
from paritygate.golden.store import Store
from paritygate.golden.survey import survey
from paritygate.verdict import Verdict

ROOT = Path(__file__).parents[2]
POLICY = policies.load(ROOT)
STORE = Store(ROOT / POLICY.goldens.directory)
NAMES = STORE.names()
# One of each kind, the short ones: the gate replays them all.
REPLAYED = ("one-token-capital", "eos-chat-capital", "stop-inside-word", "utf8-emoji-fruit")


def test_the_store_is_sound() -> None:
    assert survey(POLICY, ROOT).faults == ()


def test_the_cases_cover_what_can_go_wrong() -> None:
    goldens = [STORE.load(name) for name in NAMES]
    kinds = Counter(golden.case.kind for golden in goldens)
    assert {"plain", "chat", "long", "utf8", "code", "list", "stop", "one-token", "eos"} <= set(kinds)
    assert sum(len(golden.token_ids) == 64 for golden in goldens) >= 16
    assert sum(golden.case.messages is not None for golden in goldens) >= 4
    assert (
        sum(len([m for m in golden.case.messages or () if m.role == "user"]) > 1 for golden in goldens) >= 2
    )
    longest = max(len(golden.prompt_token_ids) for golden in goldens)
    assert longest > 2 * 512  # several prefill pieces
    assert {"Eos", "StopSequence", "Length"} <= {golden.finish_cause for golden in goldens}
    text = "".join(golden.text for golden in goldens)
    for script in ("α", "日", "安", "🍎", "ь"):
        assert script in text


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_says_who_computed_it(name: str) -> None:
    golden = STORE.load(name)
    runs = golden.provenance.runs
    assert [(run.oracle, run.threads) for run in runs] == [
        ("transformers", 1), ("transformers", 2), ("mlx-lm", 1), ("mlx-lm", 2),
    ]  # fmt: skip
    assert all({"torch", "tokenizers"} <= set(run.versions) for run in runs)
    assert golden.provenance.weights_sha256 == POLICY.checkpoint.sha256
    assert golden.acceptance is not None
    assert golden.acceptance.reason
    # Margins are recorded to the same floor that the policy names, and the noise is far below.
    assert golden.min_margin >= POLICY.goldens.margin_floor
    assert (
        max(run.max_difference for run in runs) * POLICY.goldens.noise_multiple <= POLICY.goldens.margin_floor
    )
    assert all(len(position.top) == 5 for position in golden.positions)


@pytest.fixture(scope="module")
def pool() -> Iterator[ArmPool]:
    with ArmPool(POLICY) as arms:
        yield arms


@pytest.mark.parametrize("arm", ["torch", "mlx"])
@pytest.mark.parametrize("name", REPLAYED)
def test_the_engine_says_what_the_oracles_said(pool: ArmPool, arm: str, name: str) -> None:
    with pool.use(arm) as engine:
        found, stream = judge(engine, STORE.load(name), POLICY)
    assert (found.verdict, found.headline[-9:]) == (Verdict.IDENTICAL, "identical")
    assert stream.counters["decode_forwards"] > 0 or len(stream.token_ids or ()) == 1
