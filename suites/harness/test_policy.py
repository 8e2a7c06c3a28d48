"""A policy that is wrong is named by line and key; what is right is typed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from paritygate import policy
from paritygate.cli import app
from paritygate.gates import golden as golden_gate
from paritygate.policy.toml_lines import line_of
from paritygate.replay import narrowed


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
        (
            'arms = ["fake", "other"]',
            'arms = ["fake", "fake"]',
            36,
            "claims.same.arms: names 'fake' twice",
        ),
        (
            'cases = ["greeting"]',
            'cases = ["greeting", "greeting"]',
            37,
            "claims.same.cases: names 'greeting' twice",
        ),
    ],
)
def test_an_error_names_line_and_key(repository: Path, find: str, replace: str, line: int, key: str) -> None:
    assert broken(repository, find, replace).startswith(f"paritygate.toml:{line}: {key}")


FIRST = '\n[claims.first]\nkind = "golden"\narms = ["other", "fake"]\n'
SECOND = '\n[claims.second]\nkind = "golden"\narms = ["fake"]\n'
TWO_CASES = '[[case]]\nname = "plain-two"\nmax_tokens = 2\nprompt = "Two"\n'


@pytest.mark.parametrize(
    ("narrowed", "line", "key"),
    [
        (("", ""), 45, "arms"),
        (('cases = ["plain-one"]', ""), 46, "arms"),
        (("", 'cases = ["plain-one"]'), 46, "cases"),
        (('cases = ["plain-one"]', 'cases = ["plain-two", "plain-one"]'), 47, "cases"),
    ],
)
def test_golden_claims_that_would_make_one_check_are_refused(
    repository: Path, narrowed: tuple[str, str], line: int, key: str
) -> None:
    with (repository / "golden" / "cases.toml").open("a") as cases:
        cases.write(TWO_CASES)
    more = [claim + (f"{cut}\n" if cut else "") for claim, cut in zip((FIRST, SECOND), narrowed, strict=True)]
    said = broken(repository, 'cases = ["greeting"]\n', 'cases = ["greeting"]\n' + "".join(more))
    assert said == (
        f"paritygate.toml:{line}: claims.second.{key}: claim 'first' holds arm 'fake' to case 'plain-one' already: "
        "merge them"
    )


def test_history_claims_that_would_make_one_check_are_refused(repository: Path) -> None:
    claims = "".join(
        f'\n[claims.{name}]\nkind = "history"\narms = ["fake"]\ncases = ["greeting"]\n' for name in "ab"
    )
    said = broken(repository, 'cases = ["greeting"]\n', f'cases = ["greeting"]\n{claims}')
    assert said == (
        "paritygate.toml:47: claims.b.cases: claim 'a' holds arm 'fake' to case 'greeting' already: merge them"
    )


def test_golden_claims_over_other_cases_or_arms_stand_beside_each_other(repository: Path) -> None:
    """One arm may promise more of some goldens than of others; no two checks have one name."""
    path = repository / "paritygate.toml"
    with (repository / "golden" / "cases.toml").open("a") as cases:
        cases.write(TWO_CASES)
    apart = f'{FIRST}cases = ["plain-one"]\n{SECOND}cases = ["plain-two"]\n'
    path.write_text(f"{path.read_text()}{apart}")
    loaded = policy.load(repository)
    near = policy.Envelope(kl_mean=0, kl_max=0, max_abs_logit=0, reason="by hand")
    claims = {
        name: msgspec.structs.replace(loaded.claims[name], envelope="near") for name in ("first", "second")
    }
    measured = msgspec.structs.replace(loaded, claims=claims, envelopes={"near": near})
    replayed = golden_gate.run(measured, repository, lambda _: None)
    names = [check.name for check in (golden_gate.store_check(measured, repository), *replayed)]
    assert sorted(names) == [
        "golden/fake/first/logprobs", "golden/fake/plain-one", "golden/fake/plain-two",
        "golden/fake/second/logprobs", "golden/other/first/logprobs", "golden/other/plain-one", "golden/store",
    ]  # fmt: skip
    assert narrowed(loaded, "golden/fake/plain-two")[1].claims.keys() == {"second"}


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
