"""Reading only what a question needs finds what reading everything finds."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from paritygate import policy
from paritygate.structure import import_scan
from paritygate.structure.callgraph import CallGraph
from paritygate.structure.gate import Source, evaluate
from paritygate.structure.import_scan import imports_in
from paritygate.structure.names import index_of
from paritygate.structure.rules import AnyRule, Planted
from paritygate.structure.source import Module, Tree

from .large_tree import measure

ROOT = Path(__file__).resolve().parents[2]
STRUCTURE = policy.load(ROOT).structure
FILES = Tree.read(ROOT, STRUCTURE).files


@pytest.fixture(scope="module")
def everything() -> CallGraph:
    graph = CallGraph(Tree(FILES))
    graph.dynamic()
    return graph


def test_the_uses_of_every_definition_are_those_of_a_full_reading(everything: CallGraph) -> None:
    every = [use for module in everything.tree.modules.values() for use in everything.uses_in(module)]
    by_target: dict[str, set] = {}
    for use in every:
        by_target.setdefault(use.target, set()).add(use)
    names = [
        name
        for module in everything.tree.modules.values()
        if module.name.startswith(("tokenline", "paritygate.structure", "paritygate.gates"))
        for name in (*index_of(module).functions, *index_of(module).classes)
    ]
    assert len(names) > 400
    missed = {name for name in names if by_target.get(name, set()) - set(everything.uses_of(name))}
    assert missed == set()


def test_an_alias_of_an_alias_is_still_the_function() -> None:
    files = {
        "src/a.py": "def detect(): ...\n",
        "src/b.py": "from a import detect as spot\n",
        "src/c.py": "import b\nlook = b.spot\n",
        "src/d.py": "from c import look as see\n\n\ndef f():\n    see()\n",
        "src/e.py": "def see(): ...\n\n\ndef g():\n    see()\n",
    }
    graph = CallGraph(Tree(files, roots=("src",)))
    uses = {(use.path, use.line) for use in graph.uses_of("a.detect")}
    assert uses == {("src/c.py", 2), ("src/d.py", 5)}


@pytest.mark.parametrize("rule", STRUCTURE.rules, ids=lambda rule: rule.name)
def test_a_planted_tree_says_what_a_fresh_one_says(rule: AnyRule) -> None:
    clean = Source(Tree(FILES))
    evaluate(rule, clean)  # whatever it remembers must not leak into the planted tree
    planted = clean.tree.planted(rule.planted)
    again = evaluate(rule, clean)
    shared, fresh = evaluate(rule, Source(planted)), evaluate(rule, Source(Tree(planted.files)))
    assert shared == fresh
    assert again == evaluate(rule, Source(Tree(FILES)))


def test_a_plant_in_a_planted_tree_starts_anew() -> None:
    tree = Tree({"src/a.py": "x = 1\n", "src/b.py": "y = 1\n"}, roots=("src",))
    once = tree.planted(Planted("src/a.py", append="one()"))
    twice = once.planted(Planted("src/b.py", append="two()"))
    assert [use.target for use in CallGraph(twice).unresolved("two")] == ["two"]
    assert [use.target for use in CallGraph(twice).unresolved("one")] == ["one"]
    assert CallGraph(tree).unresolved("one") == []


def _both(module: Module) -> tuple[list, list]:
    try:
        lines = list(import_scan._of_lines(module))
    except import_scan._NotPlain:
        return [], []
    key = lambda item: (item.line, item.name)  # noqa: E731
    return sorted(lines, key=key), sorted(import_scan._of_tree(module), key=key)


def test_imports_read_off_lines_are_those_of_the_syntax_tree() -> None:
    places = [*Path(sysconfig.get_path("stdlib")).glob("*.py"), *(ROOT / "harness").rglob("*.py")]
    by_lines = 0
    for place in places:
        module = Module(f"m.{place.stem}", place.name, False, place.read_text(encoding="utf-8"))
        if any(word in module.text for word in import_scan.SPECIAL):
            continue
        lines, tree = _both(module)
        assert lines == tree, place
        by_lines += bool(lines)
    assert by_lines > 150  # most files take the short way, or this proves nothing


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import a, b.c as d\n", ["a", "b.c"]),
        ("from a import (\n    b,  # see (c)\n    d,\n)\n", ["a.b", "a.d"]),
        ("from a import b; import c\n", ["a.b", "c"]),
        ("import a \\\n    , b\n", ["a", "b"]),
        ("if x: import a\n", ["a"]),
        ("x = 1; import a\n", ["a"]),
        ("'''\nimport a\n'''\nimport b\n", ["b"]),
        ('"""from a\nimport b"""\n', []),
        ("s = 'import a'  # import b\n", []),
        ("def f():\n    from . import sub\n    from .near import thing\n", ["p.sub", "p.near.thing"]),
        ("import importlib\nimportlib.import_module('late')\n", ["importlib", "late"]),
        ("from a import \\\n    b\n", ["a.b"]),
        ("from \\\n  a import b\n", ["a.b"]),
    ],
)
def test_every_spelling_of_an_import_is_read(text: str, names: list[str]) -> None:
    assert sorted(item.name for item in imports_in(Module("p.m", "p/m.py", False, text))) == sorted(names)


@pytest.mark.parametrize("language", ["python", "rust"])
def test_the_rules_hold_over_a_generated_tree(language: str, capsys: pytest.CaptureFixture[str]) -> None:
    measure(30_000, language)  # asserts that each holds and catches its plant
    assert f"{language}: " in capsys.readouterr().out
