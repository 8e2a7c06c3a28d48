"""Bisection over histories whose bad commit is known, with engines that cannot run in between."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hand_made_goldens import REASON, golden
from typer.testing import CliRunner, Result

from paritygate.bisect.search import State, Trial, search
from paritygate.cli import app
from paritygate.golden.store import Store


def trials(bad_from: int, broken: set[int]) -> tuple[Callable[[str], Trial], list[int]]:
    asked: list[int] = []

    def judge(revision: str) -> Trial:
        number = int(revision)
        asked.append(number)
        state = State.SKIPPED if number in broken else State.BAD if number >= bad_from else State.GOOD
        return Trial(revision, state, str(state))

    return judge, asked


@pytest.mark.parametrize("bad_from", range(1, 33))
def test_every_place_of_the_bad_commit_is_found_in_few_trials(bad_from: int) -> None:
    judge, asked = trials(bad_from, set())
    commits = [str(number) for number in range(1, 33)]
    found = search("0", commits, Trial("32", State.BAD, ""), judge)
    assert found.candidates == (str(bad_from),)
    assert found.first_bad.revision == str(bad_from)
    assert found.last_good == str(bad_from - 1)
    assert len(asked) <= 5  # 2**5 = 32


@pytest.mark.parametrize("bad_from", range(1, 17))
@pytest.mark.parametrize("broken", [{8}, {4, 8, 12}, {3, 4, 5}, set(range(1, 16))])
def test_what_cannot_be_judged_is_never_blamed_alone(bad_from: int, broken: set[int]) -> None:
    judge, _ = trials(bad_from, broken - {16})
    commits = [str(number) for number in range(1, 17)]
    found = search("0", commits, Trial("16", State.BAD, ""), judge)
    # By hand: from after the last good one that could be judged, to the first bad one that could.
    can = [number for number in range(17) if number not in broken]
    first = max(number for number in can if number < bad_from) + 1
    last = min(number for number in can if number >= bad_from)
    assert found.candidates == tuple(str(number) for number in range(first, last + 1))
    assert {int(trial.revision) for trial in found.skipped} <= broken


SAYS = "print({said!r}, end='')\n"
BROKEN = "raise SystemExit('no such kernel')\n"


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", "-C", str(root), *who, *words], check=True, capture_output=True, text=True
    ).stdout


def history(repository: Path, engines: list[str]) -> list[str]:
    """A commit for each engine; the policy runs the engine of the tree that it is in."""
    policy = repository / "paritygate.toml"
    policy.write_text(policy.read_text().replace(str(repository / "engine.py"), "engine.py"))
    git(repository, "init", "--quiet", "--initial-branch=main")
    revisions = []
    for number, engine in enumerate(engines):
        (repository / "engine.py").write_text(f"# version {number}\n{engine}")
        git(repository, "add", "--all")
        git(repository, "commit", "--quiet", "--message", f"version {number}")
        revisions.append(git(repository, "rev-parse", "HEAD").strip())
    return revisions


def bisect(repository: Path, case: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["bisect", case, "--root", str(repository), "--arm", "fake", *words])


def nothing_left(repository: Path) -> None:
    assert git(repository, "worktree", "list").count("\n") == 1
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == ""


def test_the_commit_that_broke_a_golden_is_named_with_its_divergence(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    right, wrong = SAYS.format(said="ab"), SAYS.format(said="ac")
    revisions = history(repository, [right, right, BROKEN, right, wrong, wrong, wrong])
    # The goldens are those of the checkout in use, not of the revision.
    store = Store(repository / "golden")
    store.write_pending(golden())
    store.accept("plain-one", REASON)
    told = bisect(repository, "plain-one", "--good", revisions[0])
    assert told.exit_code == 0, told.output
    assert f"first bad commit: {revisions[4][:7]}" in told.output
    assert "version 4" in told.output.split("first bad commit")[1]
    assert "the text differs from byte 1: 'ac' where 'ab' is expected" in told.output
    nothing_left(repository)


def test_without_a_golden_the_good_revision_is_the_reference_and_broken_ones_stay_suspects(
    repository: Path,
) -> None:
    right, wrong = "said = 'hello'\n", "said = 'hullo'\n"
    # What runs is built in each tree, from what is committed there.
    policy = repository / "paritygate.toml"
    policy.write_text(policy.read_text().replace(str(repository / "engine.py"), "built.py"))
    (repository / "make.py").write_text(
        "text = open('engine.py').read()\n"
        "open('built.py', 'w').write(text + ('' if 'raise' in text else \"print(said, end='')\"))\n"
    )
    revisions = history(repository, [right, right, BROKEN, wrong])
    told = bisect(repository, "greeting", "--good", revisions[0], "--build", f"{sys.executable} make.py")
    assert told.exit_code == 4, told.output
    assert "what this revision says is the reference" in told.output
    assert (
        f"skipped {revisions[2][:7]} version 2: arm fake, case greeting: it ended with exit status 1"
        in told.output
    )
    assert "no such kernel" in told.output
    assert "the first bad commit is one of 2" in told.output
    nothing_left(repository)


def test_what_cannot_be_searched_is_said_in_a_line(repository: Path) -> None:
    right = SAYS.format(said="hello")
    revisions = history(repository, [right, right])
    for words, said in (
        (("greeting", "--good", revisions[0]), "the bad revision is not bad (changes that are not committed"),
        (("farewell", "--good", revisions[0]), "no case is named 'farewell'"),
        (("greeting", "--good", "nowhere"), "git rev-parse"),
        (("greeting", "--good", revisions[1], "--bad", revisions[0]), "is not an ancestor of"),
        (("greeting", "--good", revisions[1]), "there is no commit after"),
    ):
        told = bisect(repository, *words)
        assert told.exit_code == 2, told.output
        assert said in told.output
        assert "Traceback" not in told.output
    told = bisect(repository, "greeting", "--good", revisions[0], "--build", "false")
    assert (told.exit_code, "it was not built" in told.output) == (3, True)
    nothing_left(repository)
