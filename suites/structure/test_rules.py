"""Each kind of rule holds on good source, names a violation, and reports itself when it guards nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paritygate.structure.gate import Source, check, evaluate, judge
from paritygate.structure.rules import AnyRule, StructurePolicy
from paritygate.structure.source import Tree
from paritygate.verdict import Outcome, Verdict

FILES = {
    "src/tool/__init__.py": "",
    "src/tool/loop.py": "def detect_loop(ids):\n    return None\n",
    "src/tool/finish.py": (
        "from tool.loop import detect_loop\n\n\n"
        "def finish(ids, max_tokens):\n    detect_loop(ids)\n    return len(ids) >= max_tokens\n"
    ),
    "src/tool/plan.py": "PIECE = 8\n\n\ndef cuts(n):\n    return range(0, n, PIECE)\n",
    "src/tool/engine.py": (
        "from tool.finish import finish\nfrom tool.plan import cuts\n\n\n"
        "class Engine:\n    def step(self, ids):\n        return finish(ids, 4)\n\n"
        "    def close(self):\n        return cuts(1)\n\n"
        "    @property\n    def size(self):\n        return 4\n\n\n"
        "class Traced:\n    def __init__(self, inner: Engine):\n        self.inner = inner\n\n"
        "    def step(self, ids):\n        return self.inner.step(ids)\n\n"
        "    def close(self):\n        return self.inner.close()\n\n"
        "    @property\n    def size(self):\n        return self.inner.size\n"
    ),
    "native/kernel.rs": "fn main() { let x = plan(); }\n",
    "other/bridge.py": "import tool.engine\n",
}
PLANTED = {"file": "src/tool/new.py", "append": "x = 1"}


def source(**changes: str | None) -> Source:
    """The good source with files changed, added or (None) removed; `src/tool/` is understood."""
    files = dict(FILES)
    for name, text in changes.items():
        path = name if "/" in name else f"src/tool/{name}.py"
        files.pop(path, None)
        if text is not None:
            files[path] = text
    return Source(Tree(files, roots=("src",)))


def rule(kind: str, **fields: object) -> AnyRule:
    """A rule from the fields that a policy would hold."""
    table = {"kind": kind, "name": f"a-{kind}", "why": "Because.", "planted": PLANTED, **fields}
    return msgspec.convert(table, AnyRule)


LAYERS = [["loop", "plan"], ["finish"], ["engine"]]
# kind, fields, a planted violation, and what the hit must say
CASES = {
    "second caller": (
        "single-caller",
        {"target": "tool.loop.detect_loop", "only_from": ["src/tool/finish.py"]},
        {
            "file": "src/tool/burst.py",
            "append": "from tool import loop as l\ndef run(i): return l.detect_loop(i)",
        },
        "src/tool/burst.py:2 tool.burst.run calls detect_loop",
    ),
    "second caller by an unknown receiver": (
        "single-caller",
        {"target": "tool.loop.detect_loop", "only_from": ["src/tool/finish.py"]},
        {"file": "src/tool/burst.py", "append": "def run(row): return row.detect_loop()"},
        "src/tool/burst.py:1 tool.burst.run calls by name detect_loop",
    ),
    "second calling function": (
        "single-caller",
        {"target": "tool.finish.finish"},
        {"file": "src/tool/engine.py", "append": "def fast(ids):\n    return finish(ids, 1)"},
        "tool.engine.fast calls finish",
    ),
    "symbol is back": (
        "absent-symbol",
        {"symbol": "legacy_cache"},
        {"file": "src/tool/plan.py", "append": "def legacy_cache(): ..."},
        "names legacy_cache",
    ),
    "dotted symbol by an alias": (
        "absent-symbol",
        {"symbol": "time.sleep"},
        {"file": "src/tool/plan.py", "append": "from time import sleep as nap\nnap(1)"},
        "time.sleep",
    ),
    "pattern in another language": (
        "absent-pattern",
        {"pattern": r"\bunsafe\b"},
        {"file": "native/kernel.rs", "find": "let x", "replace": "unsafe {} let x"},
        "native/kernel.rs:1 reads",
    ),
    "second definition": (
        "only-defined-in",
        {"defines": "detect_loop|find_loop", "only_in": ["src/tool/loop.py"]},
        {"file": "src/tool/engine.py", "append": "def find_loop(ids): ..."},
        "defines find_loop",
    ),
    "second comparison": (
        "only-defined-in",
        {"compares": "max_tokens", "only_in": ["src/tool/finish.py"]},
        {"file": "src/tool/engine.py", "append": "def done(row): return len(row.ids) >= row.max_tokens"},
        "compares 'len(row.ids) >= row.max_tokens'",
    ),
    "second comparison under another name": (
        "only-defined-in",
        {"compares": "max_tokens", "only_in": ["src/tool/finish.py"]},
        {
            "file": "src/tool/engine.py",
            "append": "def done(row):\n    most = row.max_tokens\n    return row.n == most",
        },
        "compares 'row.n == most'",
    ),
    "arithmetic elsewhere": (
        "only-defined-in",
        {"computes": "PIECE|piece_size", "only_in": ["src/tool/plan.py"]},
        {"file": "src/tool/engine.py", "append": "def next_cut(at, piece_size): return at - at % piece_size"},
        "src/tool/engine.py:",
    ),
    "a site that does not call": (
        "must-call",
        {"functions": ["tool.engine.Engine.step"], "target": "tool.loop.detect_loop"},
        {"file": "src/tool/engine.py", "find": "return finish(ids, 4)", "replace": "return False"},
        "step never calls detect_loop",
    ),
    "an import upwards": (
        "imports",
        {"package": "tool", "layers": LAYERS},
        {"file": "src/tool/plan.py", "append": "def late():\n    from tool import engine"},
        "tool.plan imports tool.engine, which is in a layer above it",
    ),
    "an import cycle inside a layer": (
        "imports",
        {"package": "tool", "layers": LAYERS},
        {"file": "src/tool/loop.py", "append": "import tool.plan\nimport tool.finish"},
        "closes the import cycle",
    ),
    "a module in no layer": (
        "imports",
        {"package": "tool", "layers": LAYERS},
        {"file": "src/tool/extra.py", "append": "x = 1"},
        "tool.extra is in no layer",
    ),
    "a forbidden import": (
        "imports",
        {"of": "tool", "forbid": ["harness"]},
        {"file": "src/tool/plan.py", "append": "import importlib\nimportlib.import_module('harness.x')"},
        "tool.plan imports harness.x",
    ),
    "a hook that is not forwarded": (
        "delegates",
        {"wrapper": "tool.engine.Traced", "wraps": "tool.engine.Engine"},
        {"file": "src/tool/engine.py", "find": "return self.inner.close()", "replace": "return None"},
        "Traced.close does not call close",
    ),
    "a property that is not read of what is wrapped": (
        "delegates",
        {"wrapper": "tool.engine.Traced", "wraps": "tool.engine.Engine"},
        {
            "file": "src/tool/engine.py",
            "find": "return self.inner.size",
            "replace": "return self.size",
        },
        "Traced.size does not call size",
    ),
    "a hook that is missing": (
        "delegates",
        {"wrapper": "tool.engine.Traced", "wraps": "tool.engine.Engine"},
        {
            "file": "src/tool/engine.py",
            "find": "class Traced",
            "replace": "    def rewind(self): ...\n\n\nclass Traced",
        },
        "Traced does not forward rewind",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_holds_on_good_source_and_catches_its_violation(case: str) -> None:
    kind, fields, planted, says = CASES[case]
    subject = rule(kind, **fields, planted=planted)
    good = source()
    held = judge(subject, good)
    assert (held.verdict, held.outcome) == (Verdict.HELD, Outcome.PASS), held.headline
    broken = judge(subject, Source(good.tree.planted(subject.planted)))
    assert (broken.verdict, broken.outcome) == (Verdict.BROKEN, Outcome.FAIL)
    found = [f"{hit['path']}:{hit['line']} {hit['what']}" for hit in broken.details["violations"]]
    assert any(says in hit for hit in found), found
    assert "Because." in broken.headline


DEAD = {
    "the target is gone": ("single-caller", {"target": "tool.loop.gone"}, "no function or class tool.loop"),
    "the caller no longer calls": (
        "single-caller",
        {"target": "tool.loop.detect_loop", "only_from": ["src/tool/finish.py", "src/tool/plan.py"]},
        "src/tool/plan.py does not use detect_loop",
    ),
    "an exception that nothing needs": (
        "absent-pattern",
        {"pattern": "unsafe", "allow": ["src/tool/plan.py"]},
        "nothing in src/tool/plan.py matches",
    ),
    "no file to read": ("absent-pattern", {"pattern": "unsafe", "files": ["**/*.swift"]}, "no file matches"),
    "nothing is defined": (
        "only-defined-in",
        {"compares": "max_length", "only_in": ["src/tool/finish.py"]},
        "nothing in src/tool/finish.py matches",
    ),
    "no function": ("must-call", {"functions": ["tool.x.*"], "target": "tool.finish.finish"}, "tool.x.*"),
    "an empty layer": ("imports", {"package": "tool", "layers": [*LAYERS, ["server"]]}, "tool.server"),
    "an exception that imports nothing": (
        "imports",
        {"of": "other", "forbid": ["tool"], "only_in": ["other/bridge.py", "other/arms/"]},
        "nothing in other/arms/ imports tool",
    ),
    "no such class": ("delegates", {"wrapper": "tool.Gone", "wraps": "tool.engine.Engine"}, "tool.Gone"),
}  # fmt: skip


@pytest.mark.parametrize("case", DEAD)
def test_a_dead_rule_fails_and_names_itself(case: str) -> None:
    kind, fields, says = DEAD[case]
    verdict = judge(rule(kind, **fields), source())
    assert verdict.verdict is Verdict.BROKEN
    assert f"a-{kind}" in verdict.headline
    assert says in " ".join(verdict.details["dead"])


def test_a_rule_that_misses_its_own_violation_is_dead() -> None:
    blind = rule(
        "absent-pattern", pattern="unsafe", planted={"file": "src/tool/plan.py", "append": "safe = 1"}
    )
    verdict = judge(blind, source())
    assert verdict.verdict is Verdict.BROKEN
    assert "the violation planted in src/tool/plan.py is not caught" in verdict.headline


def test_a_violation_that_cannot_be_planted_makes_the_rule_dead() -> None:
    lost = rule(
        "absent-pattern",
        pattern="unsafe",
        planted={"file": "src/tool/plan.py", "find": "gone", "replace": ""},
    )
    assert "nothing can be planted" in judge(lost, source()).headline


def test_a_common_method_name_is_listed_and_not_judged() -> None:
    text = "class Tok:\n    def decode(self): ...\n\n\ndef f(b, t: Tok):\n    t.decode()\n    b.decode()\n"
    subject = rule(
        "single-caller", target="tool.tok.Tok.decode", only_from=["src/tool/tok.py"], common_name=True
    )
    used_elsewhere = "from tool.tok import Tok\n\n\ndef g(b):\n    b.decode()\n    Tok().decode()\n"
    found = evaluate(subject, source(tok=text, user=used_elsewhere))
    assert [(hit.path, hit.line) for hit in found.places] == [("src/tool/tok.py", 6)]
    assert [(hit.path, hit.line) for hit in found.violations] == [("src/tool/user.py", 6)]
    assert [(hit.path, hit.line) for hit in found.unresolved] == [("src/tool/user.py", 5)]


def test_handing_a_bound_to_the_one_who_tests_it_is_no_second_test() -> None:
    user = "from tool.finish import finish\n\n\ndef ended(row):\n    return finish(row.ids, row.max_tokens) == 0\n"
    subject = rule("only-defined-in", compares="max_tokens", only_in=["src/tool/finish.py"])
    assert evaluate(subject, source(user=user)).violations == []


def test_imports_for_typing_alone_close_no_cycle() -> None:
    text = FILES["src/tool/loop.py"] + (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tool.plan import PIECE\n"
    )
    plan = FILES["src/tool/plan.py"] + "import tool.loop\n"
    found = evaluate(rule("imports", package="tool", layers=LAYERS), source(loop=text, plan=plan))
    assert found.violations == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"kind": "single-caller", "target": "a.b", "typo": 1}, "unknown field `typo`"),
        ({"kind": "no-such-kind"}, "no-such-kind"),
        ({"kind": "only-defined-in", "only_in": ["a"]}, "at least one of defines, compares and computes"),
        ({"kind": "imports", "of": "a"}, "either package and layers, or of and forbid"),
        ({"kind": "absent-symbol", "symbol": "x", "why": " "}, "why is empty"),
        ({"kind": "absent-symbol", "symbol": "x", "planted": {"file": "a"}}, "either append, or find"),
    ],
)
def test_a_rule_that_cannot_mean_anything_is_refused(fields: dict[str, object], says: str) -> None:
    table = {"name": "r", "why": "Because.", "planted": PLANTED, **fields}
    with pytest.raises(msgspec.ValidationError, match=says):
        msgspec.convert(table, AnyRule)


def test_no_rules_at_all_could_not_run(tmp_path) -> None:
    (verdict,) = check(StructurePolicy(), tmp_path, lambda line: None)
    assert verdict.outcome is Outcome.COULD_NOT_RUN


def test_a_tree_on_disk_is_read_and_source_that_does_not_parse_is_named(tmp_path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "bad.py").write_text("def (:  # unsafe\n")
    (tmp_path / "engine" / "weights.bin").write_bytes(b"\xff\x00\xfe")
    policy = StructurePolicy(rules=(rule("absent-symbol", symbol="unsafe"),))
    (verdict,) = check(policy, tmp_path, lambda line: None)
    assert verdict.verdict is Verdict.SETUP_ERROR
    assert "engine/bad.py:1" in verdict.headline


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_a_file_is_read_whatever_its_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "z.rs").write_bytes("// é\nforbidden();\n".encode(encoding))
    (tmp_path / "weights.bin").write_bytes(b"\0\1forbidden")
    tree = Tree.read(tmp_path, StructurePolicy(roots=()))
    assert list(tree.files) == ["z.rs"]
    assert tree.line("z.rs", 2) == "forbidden();"
