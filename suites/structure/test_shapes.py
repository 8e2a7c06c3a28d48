"""Shapes and texts in other languages: what matches, what is dead, what cannot run; and counted dynamic calls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from typer.testing import CliRunner

from paritygate.cli import app
from paritygate.structure.gate import Source, judge
from paritygate.structure.rules import AnyRule, Language
from paritygate.structure.source import Tree
from paritygate.verdict import Check, Outcome, Verdict

FILES = {
    "src/finish.rs": "fn done(r: &Row) -> bool {\n    r.ids.len() >= r.max_tokens\n}\n",
    "src/tick.rs": '// r.ids.len() >= r.max_tokens\nconst S: &str = "r.ids.len() >= r.max_tokens";\n',
    "web/app.ts": "export const n = fetch('/x');\n",
}


def judged(tree: dict[str, str] = FILES, **fields: object) -> Check:
    table = {
        "kind": "only-structure-in", "name": "r", "why": "Because.", "language": "rust",
        "structure": "$A.len() >= $B.max_tokens", "files": ["src/**"], "only_in": ["src/finish.rs"],
        "planted": {"file": "src/tick.rs", "append": "fn d(r: &Row) -> bool { r.ids\n  .len()\n  >= r.max_tokens }"},
    } | fields  # fmt: skip
    if table["kind"] != "only-structure-in":
        table.pop("only_in")
    return judge(msgspec.convert(table, AnyRule), Source(Tree(tree, roots=())))


def test_a_comment_and_a_string_have_no_shape_and_line_breaks_do_not_matter() -> None:
    made = judged()
    assert made.verdict is Verdict.HELD, made.headline
    assert made.headline.startswith("src/finish.rs:2 and nowhere else")
    assert [hit["line"] for hit in made.details["planted"]] == [5]


def test_a_second_place_is_named_with_its_line() -> None:
    other = FILES | {"src/burst.rs": "\n\nfn d(r: &Row) -> bool { r.ids.len() >= r.max_tokens }\n"}
    made = judged(other)
    assert made.verdict is Verdict.BROKEN
    assert made.headline.startswith("src/burst.rs:3 has 'r.ids.len() >= r.max_tokens'. Because.")


def test_another_language() -> None:
    made = judged(kind="absent-structure", language="typescript", structure="eval($$$)", files=["web/**"],
                  planted={"file": "web/app.ts", "append": "eval('1')"})  # fmt: skip
    assert made.verdict is Verdict.HELD, made.headline


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"only_in": ["src/finish.rs", "src/tick.rs"]}, "nothing in src/tick.rs matches"),
        ({"files": ["lib/**"], "only_in": ["lib/"]}, "no file matches lib/**"),
        ({"planted": {"file": "src/tick.rs", "append": "// r.ids.len() >= r.max_tokens"}}, "is not caught"),
        ({"kind": "absent-structure", "allow": ["src/tick.rs", "src/finish.rs"]}, "nothing in src/tick.rs"),
    ],
)
def test_a_dead_shape_rule_names_itself(fields: dict, said: str) -> None:
    made = judged(**fields)
    assert made.verdict is Verdict.BROKEN
    assert said in " ".join(made.details["dead"])


def test_a_pattern_that_is_none_is_one_line() -> None:
    with pytest.raises(
        msgspec.ValidationError, match="rule 'r': ' ' is no ast-grep pattern of rust: No AST"
    ) as caught:
        judged(kind="absent-structure", structure=" ")
    assert "\n" not in str(caught.value)


def test_without_ast_grep_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ast_grep_py", None)
    made = judged()
    assert made.outcome is Outcome.COULD_NOT_RUN
    assert made.headline.endswith("need ast-grep: pip install 'paritygate[rules]'")


def test_every_language_that_a_policy_may_name_is_one_that_ast_grep_reads() -> None:
    from ast_grep_py import SgRoot

    for language in get_args(Language):
        assert SgRoot("x", language).root().text() == "x"
    with pytest.raises(msgspec.ValidationError, match="klingon"):
        judged(language="klingon")


def test_text_in_the_right_file_only() -> None:
    table = {
        "kind": "only-pattern-in", "name": "r", "why": "Because.", "pattern": "max_tokens$",
        "only_in": ["src/finish.rs"], "files": ["src/**"], "planted": {"file": "src/tick.rs", "append": "r.max_tokens"},
    }  # fmt: skip
    rule = msgspec.convert(table, AnyRule)
    made = judge(rule, Source(Tree(FILES, roots=())))
    assert made.verdict is Verdict.BROKEN  # the comment is text too
    assert [(hit["path"], hit["line"]) for hit in made.details["violations"]] == [("src/tick.rs", 1)]
    permitted = msgspec.structs.replace(rule, allow=("src/tick.rs",), planted=rule.planted)
    assert "is not caught" in " ".join(judge(permitted, Source(Tree(FILES, roots=()))).details["dead"])


@pytest.mark.parametrize("pattern", [r"sleep(?!\s)", r"sleep\Z", r"^sleep", "sleep$"])
def test_a_pattern_is_matched_against_lines_and_not_against_the_text(pattern: str) -> None:
    table = {
        "kind": "absent-pattern", "name": "r", "why": "Because.", "pattern": pattern, "files": ["src/**"],
        "planted": {"file": "src/b.rs", "append": "sleep"},
    }  # fmt: skip
    tree = Tree({"src/a.rs": "x\nsleep\ny\n"}, roots=())
    made = judge(msgspec.convert(table, AnyRule), Source(tree))
    assert [(hit["path"], hit["line"]) for hit in made.details["violations"]] == [("src/a.rs", 2)]


def test_dynamic_calls_where_the_rule_looked_are_counted_and_listed() -> None:
    files = {
        "src/a.py": "def detect(): ...\n",
        "src/b.py": "from a import detect\n\n\ndef run(table, k):\n    detect()\n    table[k]()\n    eval(k)\n",
        "src/c.py": "def other(table, k):\n    table[k]()\n",
    }
    table = {
        "kind": "single-caller", "name": "r", "why": "Because.", "target": "a.detect", "only_from": ["src/b.py"],
        "planted": {"file": "src/c.py", "append": "from a import detect\ndetect()"},
    }  # fmt: skip
    made = judge(msgspec.convert(table, AnyRule), Source(Tree(files, roots=("src",))))
    assert made.verdict is Verdict.HELD
    assert made.details["dynamic_calls"] == 2
    assert [(hit["path"], hit["line"]) for hit in made.details["dynamic"]] == [
        ("src/b.py", 6),
        ("src/b.py", 7),
    ]
    assert "2 dynamic calls there cannot be followed" in made.headline


ABSENT = 'kind = "absent-pattern"\npattern = '
SHAPE = (
    'kind = "only-structure-in"\nlanguage = "rust"\nfiles = ["src/**"]\nonly_in = ["src/a.rs"]\nstructure = '
)
NAMED = 'kind = "only-defined-in"\nonly_in = ["src/a.py"]\n'


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (f'{ABSENT}"a("', "pattern 'a(' is no regular expression: missing ), unterminated subpattern at position 1"),
        (f'{ABSENT}"a{{99999999999999999999}}"', "pattern 'a{99999999999999999999}' is no regular expression: the "
         "repetition number is too large"),
        (f'{NAMED}defines = "*"', "defines '*' is no regular expression: nothing to repeat at position 0"),
        (f'{NAMED}compares = "["', "compares '[' is no regular expression: unterminated character set"),
        (f'{NAMED}computes = "?"', "computes '?' is no regular expression: nothing to repeat at position 0"),
        (f'{SHAPE}"a; b;"', "'a; b;' is no ast-grep pattern of rust: Multiple AST nodes are detected"),
    ],
)  # fmt: skip
def test_a_pattern_that_is_none_is_a_usage_error_with_the_line_of_its_rule(
    tmp_path: Path, rule: str, said: str
) -> None:
    (tmp_path / "paritygate.toml").write_text(
        'schema = 1\n[checkpoint]\nname = "m"\nmodel = "m"\n[structure]\n[[structure.rules]]\nname = "told"\n'
        f'why = "Because."\nplanted = {{ file = "src/b.rs", append = "x" }}\n{rule}\n'
    )
    for words in (["structure"], ["verify"]):
        result = CliRunner().invoke(app, [*words, "--root", str(tmp_path)])
        assert result.exit_code == 2, result.output
        assert f"paritygate.toml:6: structure.rules[0]: rule 'told': {said}" in result.output
