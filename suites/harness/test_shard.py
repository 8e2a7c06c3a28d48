"""Shards together are the whole run; what is missing, double or of another run is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from two_cases import HEAD
from typer.testing import CliRunner, Result

from paritygate import policy as policies
from paritygate.cli import app
from paritygate.gates.run import PARITY, plan_of
from paritygate.gates.shard import Shard, ShardError, split
from paritygate.gates.units import KINDS, Unit
from paritygate.policy import Claim, EnvelopeClaim
from paritygate.policy.needs import named_cases

POLICY = (
    HEAD
    + """\
[claims.first]
kind = "identity"
arms = ["a", "b"]
cases = ["greeting", "farewell"]

[claims.second]
kind = "identity"
arms = ["b", "c"]
cases = ["greeting"]

[claims.third]
kind = "identity"
arms = ["a", "odd"]
cases = ["greeting"]

[structure]
roots = ["src"]

[[structure.rules]]
name = "no sleep"
kind = "absent-pattern"
pattern = "sleep"
files = ["src/**"]
why = "It hides a race."
planted = { file = "src/x.py", append = "sleep(1)" }

[[waivers]]
check = "identity/third/odd/greeting"
reason = "odd says hullo"
issue = "17"
expires = 2999-01-01
"""
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "src" / "x.py").write_text("x = 1\n")
    text = POLICY
    for arm, word in (("a", "hello"), ("b", "hello"), ("c", "hello"), ("odd", "hullo")):
        program = root / f"{arm}.py"
        program.write_text(f"print({word!r}, end='')\n")
        words = f'["{sys.executable}", "{program}", "{{prompt}}"]'
        text += f'[arms.{arm}]\nkind = "command"\noutput = "text"\ncommand = {words}\n'
    (root / "paritygate.toml").write_text(text)
    return root


def paritygate(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def shards(root: Path, count: int, **environment: str) -> tuple[list[Path], list[Result]]:
    places = [root.parent / f"shard-{index}" for index in range(1, count + 1)]
    results = [
        paritygate("verify", "--root", root, "--shard", f"{index}/{count}", "--report", place)
        for index, place in enumerate(places, 1)
    ]
    return places, results


def document(place: Path) -> dict:
    return json.loads((place / "report.json").read_bytes())


def said(place: Path) -> list[tuple[str, str, str, str]]:
    """What a report says of each check, without its times."""
    return sorted(
        (check["name"], check["outcome"], check["verdict"], check["headline"])
        for check in document(place)["checks"]
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_union_of_the_shards_is_the_whole_run(root: Path, count: int) -> None:
    whole = paritygate("verify", "--root", root, "--report", root.parent / "whole")
    places, results = shards(root, count)
    joined = paritygate("merge", *places, "--root", root, "--report", root.parent / "joined")
    assert (whole.exit_code, joined.exit_code) == (0, 0), joined.output
    assert said(root.parent / "joined") == said(root.parent / "whole")
    # The waiver is the whole's: the shard that holds the failure fails, and says so.
    assert sorted(result.exit_code for result in results) == [0] * (count - 1) + [1]
    names = [name for place in places for name, *_ in said(place)]
    assert sorted(names) == sorted(set(names))
    for key in ("commit", "policy_hash", "tier", "manifests", "plan", "units", "exit", "shard"):
        assert document(root.parent / "joined")[key] == document(root.parent / "whole")[key], key
    tests = ET.parse(root.parent / "joined" / "junit.xml").getroot().get("tests")
    assert int(tests or 0) == len(said(root.parent / "whole"))
    assert (root.parent / "joined" / "index.html").stat().st_size > 0


def test_a_shard_says_what_to_do_next(root: Path) -> None:
    _, (first, _) = shards(root, 2)
    text = " ".join(first.output.split())
    if first.exit_code == 0:
        assert "This is one shard: join it with the others with paritygate merge" in text
    plain = paritygate("verify", "--root", root)
    assert "This is one shard" not in plain.output


def test_a_waiver_that_is_not_needed_fails_the_whole_only(root: Path) -> None:
    (root / "odd.py").write_text("print('hello', end='')\n")
    places, results = shards(root, 2)
    assert [result.exit_code for result in results] == [0, 0]
    joined = paritygate("merge", *places, "--root", root, "--report", root.parent / "joined")
    assert joined.exit_code == 1
    assert "no longer needed" in joined.output


def test_a_failure_without_a_waiver_fails_the_whole(root: Path) -> None:
    path = root / "paritygate.toml"
    head, _, tail = path.read_text().partition("[[waivers]]")
    path.write_text(head + "[arms.a]" + tail.partition("[arms.a]")[2])
    places, _ = shards(root, 2)
    assert paritygate("merge", *places, "--root", root, "--report", root.parent / "joined").exit_code == 1


def refused(root: Path, *places: Path) -> str:
    result = paritygate("merge", *places, "--root", root, "--report", root.parent / "joined")
    assert result.exit_code == 2, result.output
    assert not (root.parent / "joined").exists()
    return " ".join(result.output.split())


def edited(place: Path, **changes: object) -> Path:
    other = place.parent / f"{place.name}-edited"
    other.mkdir(exist_ok=True)
    (other / "report.json").write_text(json.dumps(document(place) | changes))
    return other


def test_what_is_not_one_run_is_refused(root: Path) -> None:
    (one, two, three), _ = shards(root, 3)
    assert "missing: shard 2/3" in refused(root, one, three)
    assert "shard 1/3 is there twice" in refused(root, one, one, two, three)
    assert "another commit than" in refused(root, one, two, edited(three, commit="f00"))
    assert "another policy than" in refused(root, one, two, edited(three, policy_hash="f00"))
    assert "another tier than" in refused(root, one, two, edited(three, tier="fast"))
    assert "another state of uncommitted changes" in refused(root, one, two, edited(three, dirty=True))
    assert "other units of work than" in refused(root, one, two, edited(three, plan=["structure"]))
    assert "is shard 1/2, " in refused(root, two, three, edited(one, shard="1/2"))
    assert "is a whole run, no shard" in refused(root, one, two, edited(three, shard=""))
    assert "report schema 9, this version reads 1" in refused(root, one, two, edited(three, schema=9))
    assert "are not of one split" in refused(root, one, two, edited(three, units=document(one)["units"]))
    assert "it never ran" in refused(root, one, two, edited(three, checks=[]))
    assert "not a report of a run" in refused(root, one, two, root)
    (root / "paritygate.toml").write_text((root / "paritygate.toml").read_text() + "\n")
    assert "under another paritygate.toml" in refused(root, one, two, three)


def test_an_interrupted_shard_makes_the_whole_inconclusive(root: Path) -> None:
    (one, two), _ = shards(root, 2)
    joined = root.parent / "joined"
    result = paritygate("merge", edited(one, interrupted=True), two, "--root", root, "--report", joined)
    assert result.exit_code == 4
    assert document(joined)["interrupted"] is True


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2"])
def test_a_share_that_is_none_is_a_usage_error(root: Path, share: str) -> None:
    result = paritygate("verify", "--root", root, f"--shard={share}")
    assert result.exit_code == 2
    assert "write i/n with i from 1 to n" in result.output


def test_more_shards_than_work_is_refused_by_every_shard(root: Path) -> None:
    for index in (1, 5, 9):
        result = paritygate("verify", "--root", root, "--shard", f"{index}/9")
        assert result.exit_code == 2
        assert "so some shard would test nothing: use at most 4 shards" in " ".join(result.output.split())


def test_every_unit_is_in_one_share_and_none_is_empty() -> None:
    policy = policies.load(Path(__file__).parents[2])
    units = plan_of(policy, Path(__file__).parents[2], ("structure", "golden", "identity", "cache", "bench"))
    for count in range(1, len(units) + 1):
        shares = split(units, count)
        assert all(shares)
        assert sorted(unit.name for share in shares for unit in share) == sorted(u.name for u in units)
        assert shares == split(tuple(units), count)
    with pytest.raises(ShardError, match="use at most 2 shards"):
        Shard(1, 3).of(units[:2])


def test_every_kind_of_claim_has_a_gate_and_a_unit() -> None:
    tags = {kind.__struct_config__.tag: kind for kind in get_args(Claim)}
    assert {gate: kind for gate, (kind, _) in KINDS.items()} == tags
    assert set(PARITY) == set(tags)


def test_every_claim_is_in_units_that_cannot_pass_empty() -> None:
    """Over a policy with every kind of claim: each is in a unit for each arm, with its cases, and must show checks."""
    root = Path(__file__).parents[1] / "faults"
    policy = policies.load(root)
    near = EnvelopeClaim(arms=("inside", "command"), cases=("flood",), envelope="float32")
    policy = msgspec.structs.replace(policy, claims=policy.claims | {"near": near})
    assert {type(claim) for claim in policy.claims.values()} == set(get_args(Claim))
    units = plan_of(policy, root, tuple(PARITY))
    assert len({unit.name for unit in units}) == len(units)
    for name, claim in policy.claims.items():
        mine = [unit for unit in units if name in unit.claims]
        assert {arm for unit in mine for arm in unit.arms} == set(claim.arms), name
        for unit in mine:
            assert unit.gate == claim.__struct_config__.tag
            assert unit.reusable
            assert not unit.complete([])
            assert unit.answers > 0
            assert set(named_cases(claim)) <= set(unit.cases), unit.name
    wanted = {unit.name: unit.expected for unit in units}
    row = "batch/in-a-batch/server-streamed"
    cases = ("flood", "lighthouse", "seeded-one", "seeded-two", "held-to-a-schema")
    assert wanted[row] == tuple(f"{row}/{case}" for case in cases)
    assert wanted["abort/clients-leave/inside"] == ("abort/clients-leave/inside/endless",)
    assert wanted["bound/cache-is-bounded/server-streamed"] == (
        "bound/cache-is-bounded/server-streamed/limit",
    )
    assert wanted["golden/command"] == (
        "golden/command/stop-across-tokens",
        "golden/command/golden-command/logprobs",
    )


def test_an_arm_is_started_in_as_few_shares_as_balance_allows() -> None:
    # Two arms with three claims each and as much work: two shares, an arm in each.
    units = [Unit(f"cache/{n}/{arm}", "cache", (n,), (arm,), answers=4) for n in "xyz" for arm in ("p", "q")]
    one, two = split(units, 2)
    assert {len({arm for unit in share for arm in unit.arms}) for share in (one, two)} == {1}
    assert (len(one), len(two)) == (3, 3)


@pytest.mark.parametrize("repository", [True, False], ids=["in git", "outside git"])
def test_shards_of_two_states_of_the_tree_are_not_merged(root: Path, repository: bool) -> None:
    if repository:
        for words in (["init", "-q"], ["add", "paritygate.toml"],
                      ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):  # fmt: skip
            subprocess.run(["git", "-C", str(root), *words], check=True)
    places = [root.parent / f"state-{index}" for index in (1, 2)]
    paritygate("verify", "--root", root, "--shard", "1/2", "--report", places[0])
    (root / "src" / "x.py").write_text("x = 2\n")
    paritygate("verify", "--root", root, "--shard", "2/2", "--report", places[1])
    assert "another content of uncommitted files" in refused(root, *places)
