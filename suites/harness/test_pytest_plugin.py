"""The pytest plugin in sessions of its own: claims as tests, the skip budget, and sessions that measured nothing."""

from __future__ import annotations

import os
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from two_cases import HEAD

import paritygate

# Loaded here, once: an inner session forgets the modules that it loads, and numpy cannot be loaded twice.
from paritygate import pytest_claims  # noqa: F401

pytest_plugins = ["pytester"]

POLICY = (
    HEAD
    + """\
[claims.same]
kind = "identity"
arms = ["one", "two"]
cases = ["greeting", "farewell"]

[claims.other]
kind = "identity"
arms = ["one", "odd"]
cases = ["greeting"]
"""
)


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite beside a policy with two engines that say hello, and one that does not."""
    text = POLICY
    for arm, word in (("one", "hello"), ("two", "hello"), ("odd", "hullo")):
        program = pytester.path / f"{arm}.py"
        program.write_text(
            f"import pathlib\nwith pathlib.Path({str(pytester.path / 'ran.log')!r}).open('a') as log:\n"
            f"    log.write({arm!r} + chr(10))\nprint({word!r}, end='')\n"
        )
        words = f'["{sys.executable}", "{program}", "{{prompt}}"]'
        text += f'[arms.{arm}]\nkind = "command"\noutput = "text"\ncommand = {words}\n'
    (pytester.path / "paritygate.toml").write_text(text)
    (pytester.path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return pytester


def run(session: pytest.Pytester, source: str, *words: str) -> pytest.RunResult:
    session.makepyfile(test_it="import pytest\n" + source)
    plugin = [] if _installed() else ["-p", "paritygate.pytest_plugin"]
    return session.runpytest_inprocess(*plugin, "-p", "no:cacheprovider", *words)


def _installed() -> bool:
    import importlib.metadata

    names = [point.value for point in importlib.metadata.entry_points(group="pytest11")]
    return "paritygate.pytest_plugin" in names


def ran(session: pytest.Pytester) -> list[str]:
    path = session.path / "ran.log"
    return path.read_text().split() if path.exists() else []


def properties(session: pytest.Pytester) -> dict[str, str]:
    root = ET.parse(session.path / "junit.xml").getroot()
    return {p.get("name", ""): p.get("value", "") for p in root.iter("property")}


def test_a_marked_test_runs_the_claim_and_tells_junit(session: pytest.Pytester) -> None:
    result = run(session, "@pytest.mark.parity(claim='same')\ndef test_a(): pass\n", "--junit-xml=junit.xml")
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert sorted(ran(session)) == ["one", "one", "two", "two"]
    told = properties(session)
    assert (told["parity_claim"], told["parity_gate"]) == ("same", "identity")
    assert (told["parity_verdict"], told["parity_checks"]) == ("IDENTICAL", "2")


def test_a_broken_claim_fails_with_its_evidence_before_the_body(session: pytest.Pytester) -> None:
    body = "@pytest.mark.parity(claim='other')\ndef test_a(): open('body', 'w')\n"
    result = run(session, body, "--junit-xml=junit.xml")
    result.assert_outcomes(failed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines([
        "1 of 1 checks did not pass",
        "identity/other/odd/greeting  fail  DIVERGED",
        "*the text differs from byte 1: 'hullo' where 'hello' is expected*",
    ])  # fmt: skip
    assert properties(session)["parity_verdict"] == "DIVERGED"
    assert not (session.path / "body").exists()


def test_an_engine_that_dies_is_no_pass(session: pytest.Pytester) -> None:
    (session.path / "two.py").write_text("import sys\nsys.exit('no such kernel')\n")
    result = run(session, "@pytest.mark.parity(claim='same')\ndef test_a(): pass\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*SETUP_ERROR*", "*no such kernel*"])


def test_a_marker_narrows_the_claim(session: pytest.Pytester) -> None:
    result = run(session, "@pytest.mark.parity(claim='same', cases=['farewell'])\ndef test_a(): pass\n")
    result.assert_outcomes(passed=1)
    assert sorted(ran(session)) == ["one", "two"]


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("claim='sane'", "no claim is named 'sane': there are same, other"),
        ("'same'", 'write @pytest.mark.parity(claim="...")'),
        ("claim='same', case='x'", 'write @pytest.mark.parity(claim="...")'),
        ("claim='same', cases=['x']", "claim 'same' has cases"),
        ("claim='same', cases=[]", "claim 'same' has cases"),
        ("claim='same', arms=['odd']", "claim 'same' has arms"),
    ],
)
def test_a_marker_that_names_nothing_fails(session: pytest.Pytester, marker: str, said: str) -> None:
    result = run(session, f"@pytest.mark.parity({marker})\ndef test_a(): pass\n")
    assert result.ret == 1
    assert said in result.stdout.str()


FIXTURES = """
def test_arms(parity_arm, parity_policy, parity_compare):
    case = parity_policy.cases[0]
    one, two = parity_arm("one"), parity_arm("two")
    assert parity_arm("one") is one
    found = parity_compare(one.generate(case), two.generate(case))
    assert found.verdict == "IDENTICAL"


def test_difference(parity_arm, parity_policy, parity_compare):
    case = parity_policy.cases[0]
    parity_compare(parity_arm("one").generate(case), parity_arm("odd").generate(case))


def test_no_arm(parity_arm):
    parity_arm("three")
"""


def test_fixtures_give_arms_and_comparisons(session: pytest.Pytester) -> None:
    result = run(session, FIXTURES, "--junit-xml=junit.xml")
    result.assert_outcomes(passed=1, failed=2)
    text = result.stdout.str()
    assert "'hullo' where 'hello' is expected" in text
    assert "no arm is named 'three': there are one, two, odd" in text


def test_no_policy_is_said(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    result = run(pytester, "@pytest.mark.parity(claim='same')\ndef test_a(): pass\n")
    assert result.ret == 1
    assert "paritygate.toml: not found" in result.stdout.str()


SKIPPING = """
@pytest.mark.skip(reason="the fast path is wrong")
def test_a(): pass

def test_b(): pytest.skip("no such machine")

@pytest.mark.xfail(reason="rounding", strict=True)
def test_c(): assert False

def test_d(): pass
"""


def budget(session: pytest.Pytester, limit: str) -> None:
    (session.path / "pytest.ini").write_text(f"[pytest]\nparity_skips = {limit}\n")


@pytest.mark.parametrize("words", [(), ("-n", "1")])
def test_more_skips_than_the_budget_fail_the_session_and_are_listed(
    session: pytest.Pytester, words: tuple[str, ...]
) -> None:
    budget(session, "2")
    result = run(session, SKIPPING, *words)
    result.assert_outcomes(passed=1, skipped=2, xfailed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines_random([
        "3 tests were skipped, the budget (parity_skips) is 2:",
        "  test_it.py::test_a: the fast path is wrong",
        "  test_it.py::test_b: no such machine",
        "  test_it.py::test_c: fails as expected: rounding",
    ])  # fmt: skip


def test_skips_within_the_budget_pass(session: pytest.Pytester) -> None:
    budget(session, "3")
    assert run(session, SKIPPING).ret == 0


def test_without_a_budget_nothing_is_counted(session: pytest.Pytester) -> None:
    assert run(session, SKIPPING).ret == 0


def test_a_skipped_module_counts(session: pytest.Pytester) -> None:
    budget(session, "0")
    session.makepyfile(test_other="def test_b(): pass\n")
    result = run(session, "pytest.skip('not here', allow_module_level=True)\n")
    assert result.ret == 1
    assert "test_it.py (the whole module): not here" in result.stdout.str()


def test_a_budget_that_is_no_number_is_a_usage_error(session: pytest.Pytester) -> None:
    budget(session, "some")
    result = run(session, "def test_a(): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "parity_skips = some: write how many tests may be skipped" in result.stderr.str()


NOTHING = """
@pytest.mark.skip(reason="later")
@pytest.mark.parity(claim="same")
def test_a(): pass

def test_b(): pass
"""


@pytest.mark.parametrize("words", [(), ("-n", "1")])
def test_a_session_that_measured_nothing_of_what_it_selected_is_not_green(
    session: pytest.Pytester, words: tuple[str, ...]
) -> None:
    result = run(session, NOTHING, *words)
    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == 1
    assert "1 parity tests were selected and none ran a check: nothing was measured" in result.stdout.str()
    assert ran(session) == []
    assert run(session, NOTHING, "-k", "test_b").ret == 0  # none selected, nothing promised


def test_one_that_measured_is_enough_beside_a_budget(session: pytest.Pytester) -> None:
    more = NOTHING + "\n@pytest.mark.parity(claim='same')\ndef test_c(): pass\n"
    assert run(session, more).ret == 0
    budget(session, "0")
    assert run(session, more).ret == 1


def test_the_documented_suite_runs(session: pytest.Pytester) -> None:
    text = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text(encoding="utf-8")
    (suite,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (options,) = re.findall(r"```ini\n(.*?)```", text, re.DOTALL)
    (session.path / "pytest.ini").write_text(options)
    result = run(session, suite)
    result.assert_outcomes(passed=3)
    assert result.ret == 0


def test_this_repository_declares_a_budget() -> None:
    import tomllib

    root = Path(__file__).parents[2]
    options = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert int(options["parity_skips"]) == 0
    points = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert points == {"paritygate": "paritygate.pytest_plugin"}
    assert (Path(paritygate.__file__).parent / "pytest_plugin.py").is_file()
