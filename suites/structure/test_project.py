"""The rules of this repository hold on this repository, and each catches the violation planted for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paritygate import policy
from paritygate.structure.gate import Source, caught, evaluate
from paritygate.structure.rules import AnyRule
from paritygate.structure.source import Tree

ROOT = Path(__file__).resolve().parents[2]
STRUCTURE = policy.load(ROOT).structure


@pytest.fixture(scope="module")
def source() -> Source:
    return Source(Tree.read(ROOT, STRUCTURE))


@pytest.mark.parametrize("rule", STRUCTURE.rules, ids=lambda rule: rule.name)
def test_the_rule_holds_and_catches_its_violation(rule: AnyRule, source: Source) -> None:
    clean = evaluate(rule, source)
    assert (clean.violations, clean.dead) == ([], [])
    found = caught(rule, source, clean)
    assert any(hit.path == rule.planted.file for hit in found)


def test_every_rule_that_the_house_asks_for_is_there() -> None:
    names = {rule.name for rule in STRUCTURE.rules}
    assert {
        "one caller of loop detection",
        "one definition of the max-token test",
        "chunk arithmetic only in the prefill plan",
        "pad arithmetic only in the layer caches",
        "one detokenizer",
        "sampler called from one place",
        "import direction of the engine",
        "the engine imports nothing of the harness",
        "the harness reaches the engine only through arms",
    } <= names
