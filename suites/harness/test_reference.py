"""The reference pages say what the readers read: every key, its default, every example, every schema."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest
from typer.testing import CliRunner

from paritygate import policy as policies
from paritygate import run as runs
from paritygate import stream
from paritygate.arms.registry import GROUP
from paritygate.bench.settings import BenchPolicy
from paritygate.case import Case, Constraint, Message, Sampler
from paritygate.cli import app
from paritygate.faults.catalogue import Edit, Fault
from paritygate.faults.plant import plant
from paritygate.faults.settings import FaultsPolicy
from paritygate.golden import store
from paritygate.policy.case_file import load_cases
from paritygate.policy.catalogue import load_catalogue
from paritygate.policy.load import SECTIONS
from paritygate.schema import SCHEMAS, PolicyFile, schema_text
from paritygate.structure.rules import StructurePolicy
from paritygate.triage.settings import TriagePolicy
from paritygate.verdict import Check, Exit, Outcome, Verdict

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
# Every kind of arm and of claim that this project brings; what other packages bring, they document.
ARMS = {
    f'`kind = "{point.name}"`': point.load().Options
    for point in importlib.metadata.entry_points(group=GROUP)
    if point.module.startswith("paritygate.")
}
CLAIMS = {f'`kind = "{kind.__struct_config__.tag}"`': kind for kind in get_args(policies.Claim)}
TABLES: dict[str, dict[str, Any]] = {
    "policy": {
        "`[checkpoint]`": policies.CheckpointPolicy,
        **ARMS,
        "`[goldens]`": policies.GoldenPolicy,
        "`[[cases]]`": Case,
        "`messages`": Message,
        "`sampler`": Sampler,
        "`constraint`": Constraint,
        **CLAIMS,
        "`[envelopes.NAME]`": policies.Envelope,
        "`[faults]`": FaultsPolicy,
        "`[[waivers]]`": policies.Waiver,
        "`[triage]`": TriagePolicy,
        "`[reuse]`": policies.ReusePolicy,
        "`[members]`": policies.MembersPolicy,
        "`[bench]`": BenchPolicy,
        "`[structure]`": StructurePolicy,
    },
    "verdict": {"A run": runs.Run, "`machine`": runs.Machine, "`checks`": Check},
    "stream": {"A stream": stream.Stream, "`positions`": stream.Position, "`usage`": stream.Usage},
    "golden": {
        "Header": store.Golden,
        "`provenance`": store.Provenance,
        "`runs`": store.OracleRun,
        "`acceptance`": store.Acceptance,
    },
    "faults": {"`[[fault]]`": Fault, "`edits`": Edit},
}


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^##+ (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(section: str) -> dict[str, str]:
    """Key and default of each row of the section's table of keys."""
    found = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \| .* \|$", section, re.MULTILINE)
    return {key: default.strip() for key, default in found}


def declared(kind: Any) -> Iterator[tuple[str, str]]:
    """Key and default, as the pages write it, of each field of a struct."""
    if is_dataclass(kind):
        given = [(f.name, f.default, f.default_factory, MISSING) for f in fields(kind)]
    else:
        if kind.__struct_config__.tag:
            yield "kind", "required"
        given = [
            (f.encode_name, f.default, f.default_factory, msgspec.NODEFAULT)
            for f in msgspec.structs.fields(kind)
        ]
    for name, default, factory, nothing in given:
        value = default if default is not nothing else factory() if factory is not nothing else nothing
        if value is nothing:
            yield name, "required"
        else:
            yield name, "none" if value is None else f"`{json.dumps(msgspec.to_builtins(value))}`"


@pytest.mark.parametrize(
    ("name", "heading"), [(name, heading) for name, headings in TABLES.items() for heading in headings]
)
def test_every_key_is_documented_with_its_default_and_no_other(name: str, heading: str) -> None:
    assert rows(sections(page(name))[heading]) == dict(declared(TABLES[name][heading]))


def test_every_kind_is_documented_and_no_other() -> None:
    kinds = [heading for heading in sections(page("policy")) if heading.startswith("`kind = ")]
    assert sorted(kinds) == sorted([*ARMS, *CLAIMS])
    assert len(ARMS) >= 6


def test_every_table_of_the_policy_has_a_section() -> None:
    text = page("policy")
    named = re.search(r"^The tables: (.+?)\. ", text, re.MULTILINE | re.DOTALL)
    assert named is not None
    assert set(re.findall(r"`(\w+)`", named.group(1))) == set(SECTIONS)
    assert set(msgspec.structs.fields(PolicyFile)[i].name for i in range(len(SECTIONS))) == set(SECTIONS)
    heads = " ".join(sections(text))
    assert all(f"[{table}" in heads for table in SECTIONS if table != "schema")


@pytest.mark.parametrize(
    ("heading", "members"),
    [
        ("Verdicts", {str(v) for v in Verdict}),
        ("Outcomes", {str(o) for o in Outcome}),
        ("Exit codes", {str(int(e)) for e in Exit}),
    ],
)
def test_every_word_of_a_report_is_documented(heading: str, members: set[str]) -> None:
    found = re.findall(r"^\| `([^`]+)` \|", sections(page("verdict"))[heading], re.MULTILINE)
    assert sorted(found) == sorted(members)


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page(name), re.DOTALL | re.MULTILINE)


POLICIES = blocks("policy", "toml")


@pytest.mark.parametrize("index", range(len(POLICIES)))
def test_a_shown_policy_is_read(index: int, tmp_path: Path) -> None:
    """The first is whole; each further one is a part that the first takes."""
    whole = POLICIES[0] if index == 0 else f"{POLICIES[0]}\n{POLICIES[index]}"
    (tmp_path / "paritygate.toml").write_text(whole, encoding="utf-8")
    (faults,) = blocks("faults", "toml")
    (tmp_path / "faults.toml").write_text(faults, encoding="utf-8")
    member = tmp_path / "golden" / "models" / "qwen3"
    member.mkdir(parents=True)
    (member / "paritygate.toml").write_text(POLICIES[0], encoding="utf-8")
    policy = policies.load(tmp_path)
    assert policy.tables == set(tomllib.loads(whole))
    jsonschema_rs.validate(SCHEMAS["policy"](), json.loads(json.dumps(tomllib.loads(whole), default=str)))


def test_the_shown_report_is_read_and_refused_under_another_version() -> None:
    (shown,) = blocks("verdict", "json")
    made = runs.from_json(shown.encode(), at="shown")
    assert (made.exit, made.checks[0].verdict) == (Exit.GATE_FAILED, Verdict.DIVERGED)
    assert json.loads(json.dumps(made.to_json())) == json.loads(shown)
    for version, said in ((2, "report schema 2, this version reads 1"), (None, "report schema None")):
        with pytest.raises(runs.RunError, match=said):
            runs.from_json(json.dumps(json.loads(shown) | {"schema": version}).encode(), at="shown")
    more = json.dumps(json.loads(shown) | {"later": 1}).encode()
    assert runs.from_json(more, at="shown") == made
    with pytest.raises(runs.RunError, match="shown: not a report of a run"):
        runs.from_json(b'{"schema": 1}', at="shown")
    jsonschema_rs.validate(SCHEMAS["report"](), json.loads(shown))


def test_the_shown_streams_are_read(tmp_path: Path) -> None:
    (shown,) = blocks("stream", "jsonl")
    path = tmp_path / "streams.jsonl"
    path.write_text(shown, encoding="utf-8")
    first, second = stream.read(path)
    assert (first.token_ids, second.token_ids) == ((7042, 30), None)
    for line in shown.splitlines():
        jsonschema_rs.validate(SCHEMAS["stream"](), json.loads(line))
    path.write_text(shown.replace('"schema":1', '"schema":2', 1), encoding="utf-8")
    with pytest.raises(stream.StreamError, match=r"streams\.jsonl:1: stream schema 2"):
        stream.read(path)


def test_the_shown_golden_and_its_case_are_read(tmp_path: Path) -> None:
    (shown,) = blocks("golden", "jsonl")
    golden = store.decode(shown.encode(), at="shown")
    jsonschema_rs.validate(SCHEMAS["golden"](), json.loads(shown.splitlines()[0]))
    (cases,) = blocks("golden", "toml")
    (tmp_path / "cases.toml").write_text(cases, encoding="utf-8")
    assert load_cases(tmp_path / "cases.toml") == (golden.case,)


def test_the_shown_faults_are_read_and_planted(tmp_path: Path) -> None:
    (shown,) = blocks("faults", "toml")
    (tmp_path / "faults.toml").write_text(shown, encoding="utf-8")
    stale, absent = load_catalogue(tmp_path, ["faults.toml"])
    assert stale.says("the arm's history is one token stale at 3")
    assert (stale.gates, absent.edits) == (("history",), ())
    source = tmp_path / stale.edits[0].file
    source.parent.mkdir(parents=True)
    source.write_text("def draw(logits, history):\n    return penalise(logits, history)\n")
    assert plant(tmp_path, stale.edits) == ("src/my_engine/sampler.py:2",)
    assert source.read_text().endswith("    return penalise(logits, history[:-1])\n")


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_in_the_docs_is_the_one_that_is_generated(name: str) -> None:
    made = CliRunner().invoke(app, ["schema", name])
    assert (made.exit_code, made.stdout) == (0, schema_text(name))
    path = REFERENCE / f"{name}.schema.json"
    assert path.read_text(encoding="utf-8") == made.stdout, f"paritygate schema {name} > {path}"
    jsonschema_rs.meta.validate(json.loads(made.stdout))


def test_a_schema_refuses_what_the_reader_refuses() -> None:
    validator = jsonschema_rs.validator_for(SCHEMAS["policy"]())
    good = tomllib.loads(POLICIES[0])
    assert validator.is_valid(good)
    for change in ({"schema": 2}, {"surprise": 1}, {"checkpoint": {"name": "x"}}, {"reuse": {"source": []}}):
        assert not validator.is_valid(good | change), change
    report = jsonschema_rs.validator_for(SCHEMAS["report"]())
    (shown,) = blocks("verdict", "json")
    assert not report.is_valid(json.loads(shown) | {"schema": 2})
    assert not report.is_valid({"schema": 1})


def test_an_unknown_schema_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["schema", "verdict"])
    assert result.exit_code == 2
    assert "no schema 'verdict': there are policy, stream, golden, report" in result.output


def test_this_repository_s_own_files_fit_the_schemas() -> None:
    document = tomllib.loads((ROOT / "paritygate.toml").read_text(encoding="utf-8"))
    jsonschema_rs.validate(SCHEMAS["policy"](), json.loads(json.dumps(document, default=str)))
    (first, *_) = sorted((ROOT / "golden").rglob("*.jsonl"))
    header = json.loads(first.read_bytes().splitlines()[0])
    jsonschema_rs.validate(SCHEMAS["golden"](), header)
