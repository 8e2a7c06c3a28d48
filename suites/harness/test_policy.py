"""A policy that is wrong is named by line and key; what is right is typed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paritygate import policy
from paritygate.cli import app
from paritygate.policy.toml_lines import line_of


def broken(repository: Path, find: str, replace: str) -> str:
    path = repository / "paritygate.toml"
    text = path.read_text()
    assert find in text
    path.write_text(text.replace(find, replace, 1))
    with pytest.raises(policy.PolicyError) as caught:
        policy.load(repository)
    return str(caught.value)


def test_a_sound_policy_is_typed(repository: Path) -> None:
    loaded = policy.load(repository)
    assert loaded.goldens.margin_floor == 0.02
    assert loaded.arms["fake"].kind == "command"
    assert loaded.claims["same"].arms == ("fake", "other")
    assert set(loaded.all_cases(repository)) == {"plain-one", "greeting"}


@pytest.mark.parametrize(
    ("find", "replace", "line", "key"),
    [
        (
            "margin_floor = 0.02",
            "margin_floor = 0.02\nmargin_flor = 1",
            23,
            "goldens.margin_flor: unknown key",
        ),
        ("[claims.same]", "[claim.same]", 34, "claim: unknown key"),
        ('cases = ["greeting"]', 'cases = ["greting"]', 37, "claims.same.cases: no case is named 'greting'"),
        ('arms = ["fake", "other"]', 'arms = ["fake"]', 36, "claims.same.arms: an identity needs two arms"),
        ('arms = ["fake", "other"]', 'arms = ["fake", "mlx"]', 36, "claims.same.arms: no arm is named 'mlx'"),
        ("max_tokens = 4", 'max_tokens = "4"', 31, "cases[0].max_tokens"),
        ("schema = 1", "schema = 2", 1, "schema"),
        ('name = "toy"\n', "", 3, "checkpoint: `name` is missing"),
        ('kind = "identity"', 'kind = "identical"', 35, "claims.same.kind"),
        ('arms = ["fake", "other"]', "arms = []", 36, "claims.same.arms: names no arm"),
    ],
)
def test_an_error_names_line_and_key(repository: Path, find: str, replace: str, line: int, key: str) -> None:
    assert broken(repository, find, replace).startswith(f"paritygate.toml:{line}: {key}")


def test_a_file_that_is_not_toml_names_its_line(repository: Path) -> None:
    assert "line 5" in broken(repository, 'model = "toy"', 'model "toy"')


def test_verify_exits_with_2(repository: Path) -> None:
    (repository / "paritygate.toml").write_text("schema = 1\nsurprise = 3\n")
    result = CliRunner().invoke(app, ["verify", "--root", str(repository)])
    assert result.exit_code == 2
    assert "paritygate.toml:2: surprise: unknown key" in result.output


def test_no_policy_says_where_to_run(tmp_path: Path) -> None:
    with pytest.raises(policy.PolicyError, match="at the root of a repository"):
        policy.load(tmp_path)


TOML = '''\
top = 1
[a]
x = """
not_a_key = 2
[nor.a.table]
"""
y = [
  "z = 1",
]
[[a.list]]
k = 1
[[a.list]]
k = 2
[a.list.inner]
deep.key = 3
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 1),
        (("a",), 2),
        (("a", "x"), 3),
        (("a", "y"), 7),
        (("a", "list", 0, "k"), 11),
        (("a", "list", 1, "k"), 13),
        (("a", "list", 1, "inner", "deep", "key"), 15),
        (("a", "list", 1, "absent"), 12),
        (("nor",), 1),
    ],
)
def test_lines_are_those_of_an_editor(path: tuple[str | int, ...], line: int) -> None:
    tomllib.loads(TOML)
    assert line_of(TOML, path) == line
