"""The policy that the README shows is one that `paritygate` takes, and asks for what it says and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paritygate.gates.run import applicable
from paritygate.policy import PolicyError, load

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
