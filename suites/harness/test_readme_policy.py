"""The policy that the README shows is one that `paritygate` takes, and asks for what it says and nothing else."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from paritygate.gates import identity
from paritygate.gates.run import applicable
from paritygate.policy import PolicyError, load
from paritygate.verdict import Exit, Outcome, exit_code

README = Path(__file__).parents[2] / "README.md"


def shown() -> str:
    (policy,) = re.findall(r"```toml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return policy


def test_the_shown_policy_runs_one_gate(tmp_path: Path) -> None:
    (tmp_path / "paritygate.toml").write_text(shown(), encoding="utf-8")
    policy = load(tmp_path)
    assert applicable(policy, "real") == ("identity",)
    assert policy.all_cases(tmp_path)["capital"].max_tokens == 32
    assert len(shown().splitlines()) < 30


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ('name = "capital"\nprompt = "x"\nmax_tokens = 1', "another case is named 'capital' too"),
        ('name = "other"\nprompt = "x"\nmax_tokens = -1', "is -1: give a number of at least 1"),
    ],
)
def test_a_case_that_would_hide_another_or_ask_for_less_than_nothing_is_refused(
    tmp_path: Path, case: str, message: str
) -> None:
    text = shown().replace("[claims.", f"[[cases]]\n{case}\n\n[claims.", 1)
    (tmp_path / "paritygate.toml").write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError, match=message):
        load(tmp_path)


def test_a_server_that_is_down_could_not_run_and_nothing_of_it_failed(tmp_path: Path) -> None:
    """Exit 3, not 1: also for the arrivals of an arm that never answered."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        text = shown().replace(":8000", f":{closed.getsockname()[1]}")
    (tmp_path / "paritygate.toml").write_text(text, encoding="utf-8")
    checks = list(identity.run(load(tmp_path), tmp_path, lambda _: None))
    assert {check.outcome for check in checks} == {Outcome.COULD_NOT_RUN}
    assert len(checks) == 2
    assert exit_code(checks) is Exit.COULD_NOT_RUN


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ('[goldens]\ndirectory = "golden"\n', "`sha256` is missing"),
        ('[claims.g]\nkind = "golden"\narms = ["server"]\nenvelope = "e"\n', r"needs a \[goldens\] table"),
    ],
)
def test_what_goldens_need_is_named(tmp_path: Path, added: str, message: str) -> None:
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "cases.toml").write_text("", encoding="utf-8")
    (tmp_path / "paritygate.toml").write_text(shown() + added, encoding="utf-8")
    with pytest.raises(PolicyError, match=message):
        load(tmp_path)
