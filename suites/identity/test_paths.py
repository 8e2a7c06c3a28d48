"""One engine, however it is driven: a few cases through every arm, each answer the oracles' golden."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paritygate import policy as policies
from paritygate.compare.identity import EXECUTION, SETTINGS, compare
from paritygate.compare.reuse import reused
from paritygate.gates.arm_pool import ArmPool
from paritygate.golden.store import Store
from paritygate.verdict import Verdict

ROOT = Path(__file__).parents[2]
POLICY = policies.load(ROOT)
STORE = Store(ROOT / POLICY.goldens.directory)
CASES = POLICY.all_cases(ROOT)
FLOOR = POLICY.goldens.margin_floor


@pytest.fixture(scope="module")
def pool() -> Iterator[ArmPool]:
    with ArmPool(POLICY) as arms:
        yield arms


@pytest.mark.parametrize("arm", ["command", "server", "server-streamed"])
@pytest.mark.parametrize("name", ["eos-chat-capital", "stop-question"])
def test_every_path_says_what_the_oracles_said(pool: ArmPool, arm: str, name: str) -> None:
    with pool.use(arm) as engine:
        found = compare(STORE.load(name).as_stream(), engine.generate(CASES[name]), floor=FLOOR)
    assert found.verdict is Verdict.IDENTICAL, found.headline


def test_seeded_draws_and_penalties_are_alike_on_every_path(pool: ArmPool) -> None:
    answers = {}
    for arm in ("torch", "command", "server-streamed"):
        with pool.use(arm) as engine:
            answers[arm] = engine.generate(CASES["seeded-penalised"])
    for arm in ("command", "server-streamed"):
        found = compare(answers["torch"], answers[arm], floor=FLOOR, settings=SETTINGS + EXECUTION)
        assert found.verdict is Verdict.IDENTICAL, found.headline


def test_a_streamed_character_is_never_halved(pool: ArmPool) -> None:
    golden = STORE.load("utf8-emoji-fruit")
    with pool.use("server-streamed") as engine:
        stream = engine.generate(golden.case)
    assert stream.text_bytes == golden.as_stream().text_bytes
    ends = stream.chunk_ends or ()
    assert len(ends) > 8
    whole = stream.text_bytes
    for end in ends[:-1]:
        assert "\ufffd" not in whole[:end].decode("utf-8")


def test_a_hit_through_the_server_is_a_hit_and_says_the_same(pool: ArmPool) -> None:
    golden = STORE.load("eos-chat-sum")
    with pool.use("server") as engine:
        cold, *hits = engine.repeat(golden.case, 3)
    for hit in hits:
        assert reused(cold, hit).verdict is Verdict.HELD, reused(cold, hit).headline
        assert compare(golden.as_stream(), hit, floor=FLOOR).verdict is Verdict.IDENTICAL
