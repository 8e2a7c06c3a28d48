"""Admission, the store and its lifecycle, over answers made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hand_made_goldens import CASE, POLICY, REASON, answers, golden

from paritygate import policy as policies
from paritygate.arms.written_answer import cut_at_stop
from paritygate.gates.golden import store_check
from paritygate.golden.admission import NotAdmitted, admit
from paritygate.golden.store import Acceptance, GoldenError, Store, decode, encode
from paritygate.golden.survey import survey
from paritygate.policy.case_file import load_cases


def test_four_runs_that_agree_are_admitted() -> None:
    made = golden()
    assert (made.token_ids, made.min_margin) == ((7, 8), 0.5)
    assert [(run.oracle, run.threads) for run in made.provenance.runs] == [
        ("transformers", 1), ("transformers", 2), ("mlx-lm", 1), ("mlx-lm", 2),
    ]  # fmt: skip
    assert made.as_stream().usage.total_tokens == 3


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ({"ids": (7, 9)}, "mlx-lm with 2 thread.s. says another token at 1"),
        ({"ids": (7,)}, "says another token at 1"),
        ({"prompt_token_ids": (2,)}, "read other prompt tokens"),
        ({"text": "ac"}, "ended with Length and 'ac'"),
        ({"margin": 0.019}, "position 0 is decided by 0.0190 logits, below the floor 0.02"),
        ({"margin": 0.5003}, "differ by up to 0.0003 logits: the floor 0.02 is not 100 times that"),
    ],
)
def test_what_speaks_against_a_golden(last: dict, why: str) -> None:
    with pytest.raises(NotAdmitted, match=why):
        admit(CASE, answers(**last), POLICY, weights_sha256="00", machine="m")


def test_a_missing_run_and_an_unexplained_short_answer_are_not_admitted() -> None:
    with pytest.raises(NotAdmitted, match="no answer of mlx-lm with 2"):
        admit(CASE, answers()[:-1], POLICY, weights_sha256="00", machine="m")
    longer = msgspec.structs.replace(CASE, max_tokens=3)
    with pytest.raises(NotAdmitted, match="ended after 2 tokens, which its kind 'plain' does not say"):
        admit(longer, answers(), POLICY, weights_sha256="00", machine="m")


def test_a_file_says_all_of_it_and_is_read_back() -> None:
    made = golden()
    assert decode(encode(made), at="x") == made
    assert len(encode(made).splitlines()) == 3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda g: msgspec.structs.replace(g, positions=()), "no positions"),
        (
            lambda g: msgspec.structs.replace(g, positions=g.positions[:1]),
            "1 positions for 2 tokens: the file was cut",
        ),
        (lambda g: msgspec.structs.replace(g, positions=g.positions[::-1]), "not those of its tokens"),
        (lambda g: msgspec.structs.replace(g, schema=2), "golden schema 2, this version reads 1"),
        (
            lambda g: msgspec.structs.replace(
                g, positions=(msgspec.structs.replace(g.positions[0], margin=0.01), g.positions[1])
            ),
            "below the floor",
        ),
        (
            lambda g: msgspec.structs.replace(
                g, provenance=msgspec.structs.replace(g.provenance, runs=g.provenance.runs[:2])
            ),
            "fewer than two oracles",
        ),
        (
            lambda g: msgspec.structs.replace(
                g,
                provenance=msgspec.structs.replace(
                    g.provenance,
                    runs=(
                        msgspec.structs.replace(g.provenance.runs[0], oracle="tokenline"),
                        *g.provenance.runs[1:],
                    ),
                ),
            ),
            "by the engine that it would judge",
        ),
    ],
)
def test_a_golden_that_proves_nothing_is_refused(change, why: str) -> None:
    with pytest.raises(GoldenError, match=why):
        decode(encode(change(golden())), at="x")


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.usefixtures("desk")
def test_a_golden_waits_until_it_is_accepted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_pending(golden())
    assert (store.names(), store.names(pending=True)) == ((), ("plain-one",))
    store.accept("plain-one", REASON)
    assert (store.names(), store.names(pending=True)) == (("plain-one",), ())
    assert store.load("plain-one").acceptance == REASON
    with pytest.raises(GoldenError, match="for a reason"):
        store.accept("plain-one", Acceptance(date="2026-01-01", reason=" "))


@pytest.mark.usefixtures("desk")
def test_one_case_leaves_the_others_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("plain-one", "plain-two"):
        store.write_pending(golden(msgspec.structs.replace(CASE, name=name)))
        store.accept(name, REASON)
    before = store.path("plain-two").read_bytes()
    store.write_pending(golden())
    store.accept("plain-one", REASON)
    assert store.path("plain-two").read_bytes() == before


def test_ci_never_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    store = Store(tmp_path)
    store.write_pending(golden())
    monkeypatch.setenv("CI", "true")
    with pytest.raises(GoldenError, match="CI must not record"):
        store.write_pending(golden())
    with pytest.raises(GoldenError, match="CI must not accept"):
        store.accept("plain-one", REASON)
    assert store.names(pending=True) == ("plain-one",)


@pytest.mark.usefixtures("desk")
def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.write_pending(golden())
    store.accept("plain-one", REASON)
    before = store.path("plain-one").read_bytes()
    store.write_pending(golden())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GoldenError, match="nothing was changed: No space left"):
        store.accept("plain-one", REASON)
    assert store.path("plain-one").read_bytes() == before
    assert sorted(path.name for path in store.directory.iterdir()) == [
        "plain-one.jsonl",
        "plain-one.pending.jsonl",
    ]


@pytest.mark.usefixtures("desk")
def test_the_survey_names_what_is_wrong(repository: Path) -> None:
    policy = policies.load(repository)
    store = Store(repository / "golden")
    found = survey(policy, repository)
    assert (found.missing, found.accepted) == (("plain-one",), ())
    assert found.faults[0] == "there is no accepted golden: nothing could be replayed"
    for name in ("plain-one", "plain-gone"):
        store.write_pending(golden(msgspec.structs.replace(CASE, name=name)))
        store.accept(name, REASON)
    found = survey(policy, repository)
    assert found.faults == (
        "goldens of no case (orphans): plain-gone",
        "goldens that no claim replays: plain-gone, plain-one",
    )
    changed = (repository / "golden" / "cases.toml").read_text().replace('"One"', '"Two"')
    (repository / "golden" / "cases.toml").write_text(changed)
    assert survey(policy, repository).stale == ("plain-one",)
    store.path("plain-one").write_bytes(store.path("plain-one").read_bytes()[:-20])
    assert "plain-one.jsonl" in survey(policy, repository).invalid[0]


@pytest.mark.usefixtures("desk")
def test_a_headline_names_six_and_the_evidence_all(repository: Path) -> None:
    cases = repository / "golden" / "cases.toml"
    cases.write_text("".join(
        f'[[case]]\nname = "case-{letter}"\nmax_tokens = 2\nprompt = "One"\n' for letter in "abcdefghi"
    ))  # fmt: skip
    found = survey(policies.load(repository), repository)
    assert found.faults[1] == "no golden yet: case-a, case-b, case-c, case-d, case-e, case-f and 3 more"
    assert found.told()[1].endswith("case-f, case-g, case-h, case-i")
    check = store_check(policies.load(repository), repository)
    assert check.headline == "; ".join(found.faults)
    assert check.details["missing"] == tuple(f"case-{letter}" for letter in "abcdefghi")
    store = Store(repository / "golden")
    for letter in "abcdef":
        store.write_pending(golden(msgspec.structs.replace(CASE, name=f"gone-{letter}")))
        store.accept(f"gone-{letter}", REASON)
    # Six are named, and nothing is left to count.
    orphans = survey(policies.load(repository), repository).faults[1]
    assert orphans == "goldens of no case (orphans): gone-a, gone-b, gone-c, gone-d, gone-e, gone-f"


@pytest.mark.parametrize(
    ("text", "stops", "cut"),
    [("abcabd", ("bd", "ca"), "ab"), ("abc", ("x",), None), ("abc", (), None), ("abc", ("a",), "")],
)
def test_text_ends_before_the_first_stop_string(text: str, stops: tuple[str, ...], cut: str | None) -> None:
    assert cut_at_stop(text, stops) == cut


def test_cases_are_read_with_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_bytes("a\r\nβ".encode())
    (tmp_path / "cases.toml").write_text(
        '[[case]]\nname = "x"\nkind = "long"\nmax_tokens = 1\nprompt_file = "long.txt"\n'
    )
    assert load_cases(tmp_path / "cases.toml")[0].prompt == "a\r\nβ"
