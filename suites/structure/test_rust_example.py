"""The documented rules over a Rust tree: broken before the refactorings, held after; and every documented kind."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from paritygate import policy
from paritygate.structure.gate import Source, check, evaluate, judge
from paritygate.structure.rules import AnyRule, StructurePolicy
from paritygate.structure.source import Tree
from paritygate.verdict import Check, Verdict

from .test_rules import FILES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "structure-rules.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
(EXAMPLE,) = [block for block in BLOCKS if block.startswith("schema")]
FIXTURES = Path(__file__).parent / "fixtures" / "rust"

# What stands before the refactorings, by rule: path and line, counted by hand in the fixtures.
BEFORE = {
    "one caller of loop detection": [
        ("src/core/generate.rs", 4), ("src/core/generate.rs", 26), ("src/drafters/prompt_lookup.rs", 3),
    ],
    "one test of the token bound": [
        ("src/core/generate.rs", 23), ("src/drafters/prompt_lookup.rs", 6),
        ("src/server/batch/speculative_burst.rs", 8),
    ],
    "one maker of finish causes": [
        ("src/core/generate.rs", 20), ("src/core/generate.rs", 24), ("src/core/generate.rs", 27),
        ("src/server/batch/speculative_burst.rs", 9),
    ],
    "every decode site takes the finish step": [],  # it is dead: two sites left the step
    "one maker of prefill pieces": [("src/server/batch/prefill.rs", 8)],
    "chunk arithmetic only in the prefill plan": [
        ("src/core/generate.rs", 12), ("src/server/batch/prefill.rs", 7),
    ],
    "one reader of the chunk size": [("src/core/generate.rs", 9)],
    "one trim hook": [
        ("src/models/model.rs", 4), ("src/models/model.rs", 6), ("src/models/model.rs", 7),
    ],
}  # fmt: skip


def judged(tmp_path: Path, *layers: str) -> dict[str, Check]:
    for layer in layers:
        shutil.copytree(FIXTURES / layer, tmp_path, dirs_exist_ok=True)
    (tmp_path / "paritygate.toml").write_text(EXAMPLE, encoding="utf-8")
    rules = policy.load(tmp_path).structure
    return {made.name.partition("/")[2]: made for made in check(rules, tmp_path, lambda line: None)}


def test_every_rule_holds_after_the_refactorings(tmp_path: Path) -> None:
    found = judged(tmp_path, "after")
    assert {name: made.verdict for name, made in found.items()} == dict.fromkeys(BEFORE, Verdict.HELD), found
    assert all(made.details["planted"] for made in found.values())


def test_every_rule_is_broken_before_and_names_each_place(tmp_path: Path) -> None:
    found = judged(tmp_path, "after", "before")
    assert {name: made.verdict for name, made in found.items()} == dict.fromkeys(BEFORE, Verdict.BROKEN)
    for name, places in BEFORE.items():
        hits = [(hit["path"], hit["line"]) for hit in found[name].details["violations"]]
        assert hits == places, name
    dead = " ".join(found["every decode site takes the finish step"].details["dead"])
    assert "src/core/generate.rs" in dead
    assert "src/server/batch/speculative_burst.rs" in dead


def test_a_search_over_named_folders_misses_the_copy_elsewhere(tmp_path: Path) -> None:
    judged(tmp_path, "after", "before")
    tree = Tree.read(tmp_path, StructurePolicy())
    (whole,) = [
        rule for rule in policy.load(tmp_path).structure.rules if rule.name == "one test of the token bound"
    ]
    limited = msgspec.structs.replace(whole, files=("src/server/**", "src/core/*.rs"))
    elsewhere = ("src/drafters/prompt_lookup.rs", 6)
    assert elsewhere in [(hit.path, hit.line) for hit in evaluate(whole, Source(tree)).violations]
    assert elsewhere not in [(hit.path, hit.line) for hit in evaluate(limited, Source(tree)).violations]


RUST_FILES = {
    "src/server.rs": "fn serve() {}\n",
    "src/plan.rs": (
        'const N: &str = "ENGINE_PREFILL_CHUNK";\nfn all(n: usize) -> Piece { Piece { start: 0, end: n } }\n'
    ),
}
SHOWN = [
    table for block in BLOCKS if block != EXAMPLE for table in tomllib.loads(block)["structure"]["rules"]
]


@pytest.mark.parametrize("table", SHOWN, ids=lambda table: table["name"])
def test_a_documented_rule_holds_and_catches_what_it_shows(table: dict) -> None:
    rule = msgspec.convert(table, AnyRule)
    tree = Tree(RUST_FILES if rule.planted.file.endswith(".rs") else FILES, roots=("src",))
    made = judge(rule, Source(tree))
    assert made.verdict is Verdict.HELD, made.headline
    assert Source(tree.planted(rule.planted)).tree.files != tree.files


def test_every_kind_is_documented() -> None:
    kinds = {kind.__struct_config__.tag for kind in get_args(AnyRule)}
    assert {table["kind"] for table in SHOWN} == kinds
    for kind in get_args(AnyRule):
        for field in kind.__struct_fields__:
            assert f"`{field}`" in PAGE or f"\n{field} = " in PAGE, field
