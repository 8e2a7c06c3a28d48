"""A policy that is wrong is named by line and key; what is right is typed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from paritygate import policy
from paritygate.arms.registry import GROUP
from paritygate.cli import app
from paritygate.faults.catalogue import Fault
from paritygate.gates import golden as golden_gate
from paritygate.policy.case_file import CaseEntry
from paritygate.policy.toml_lines import line_of
from paritygate.replay import narrowed
from paritygate.schema import PolicyFile


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


LONG = 'cases = ["greeting"]\n'
CACHE = '[claims.cached]\nkind = "cache"\narms = ["fake"]\nrepeat = ["greeting"]\n'
HELD = '[envelopes.near]\nreason = "by hand"\nkl_max = 1\n'


@pytest.mark.parametrize(
    ("find", "replace", "said"),
    [
        ("timeout_s = 5.0", "timeout_s = 0", "12: arms.fake.timeout_s: is 0: give a number above 0"),
        ("timeout_s = 5.0", "timeout_s = -3", "12: arms.fake.timeout_s: is -3: give a number above 0"),
        ("timeout_s = 5.0", "timeout_s = nan", "12: arms.fake.timeout_s: is nan: give a finite number"),
        ("timeout_s = 5.0", "timeout_s = inf", "12: arms.fake.timeout_s: is inf: give a finite number"),
        ("timeout_s = 5.0", "timeout_s = 1e9", "12: arms.fake.timeout_s: is 1000000000.0: give a number of at "
         "most 604800"),
        ("timeout_s = 5.0", 'timeout_s = "5"', "12: arms.fake.timeout_s: is '5': give a number"),
        ("timeout_s = 5.0", "threads = 0", "12: arms.fake.threads: is 0: give a number of at least 1"),
        ("max_tokens = 4", "max_tokens = 0", "31: cases[0].max_tokens: is 0: give a number of at least 1"),
        ("max_tokens = 4", "max_tokens = -4", "31: cases[0].max_tokens: is -4: give a number of at least 1"),
        ("max_tokens = 4", "max_tokens = 1e23", "31: cases[0].max_tokens: is 1e+23: give a whole number"),
        ("max_tokens = 4", "max_tokens = true", "31: cases[0].max_tokens: is true: give a whole number"),
        ("max_tokens = 4", f"max_tokens = 1{'0' * 23}", f"31: cases[0].max_tokens: is 1{'0' * 23}: give a number of "
         "at most 100000000"),
        ("max_tokens = 4", "max_tokens = 4\nlogprobs = -1", "32: cases[0].logprobs: is -1: give a number of at "
         "least 0"),
        ("max_tokens = 4", "max_tokens = 4\nmin_prompt_tokens = -1", "32: cases[0].min_prompt_tokens: is -1:"),
        ("max_tokens = 4", "max_tokens = 4\nsampler = { temperature = -1 }", "32: cases[0].sampler.temperature: is -1"),
        ("max_tokens = 4", "max_tokens = 4\nsampler = { top_p = inf }", "32: cases[0].sampler.top_p: is inf"),
        ("margin_floor = 0.02", "margin_floor = nan", "22: goldens.margin_floor: is nan: give a finite number"),
        ("margin_floor = 0.02", "margin_floor = -1", "22: goldens.margin_floor: is -1: give a number of at least 0"),
        ("noise_multiple = 100", "noise_multiple = 0", "23: goldens.noise_multiple: is 0: give a number above 0"),
        ("threads = [1, 2]", "threads = [1, 0]", "25: goldens.threads[1]: is 0: give a number of at least 1"),
        (LONG, f"{LONG}{HELD}kl_mean = 1\nmax_abs_logit = inf\n", "42: envelopes.near.max_abs_logit: is inf"),
        (LONG, f"{LONG}{HELD}kl_mean = -1\nmax_abs_logit = 1\n", "41: envelopes.near.kl_mean: is -1: give a"),
        (LONG, f"{LONG}{CACHE}max_tokens = 0\n", "42: claims.cached.max_tokens: is 0: give a number of at least 1"),
        (LONG, f"{LONG}{CACHE}changed_end = ['greeting']\n", "38: claims.cached: changed_end needs `shorter_tokens`"),
        (LONG, f"{LONG}{CACHE}evicted = ['greeting']\n", "38: claims.cached: evicted needs `crowd`"),
        (LONG, f"{LONG}[bench]\nmargin = nan\n", "39: bench.margin: is nan: give a finite number"),
        (LONG, f"{LONG}[bench]\nmargin = 1\n", "39: bench.margin: is 1: give a number below 1"),
        (LONG, f"{LONG}[bench]\nmargins = {{ decode = 0 }}\n", "39: bench.margins: a value of it is out of range: "
         "give a number above 0"),
        (LONG, f"{LONG}[bench]\nalpha = 0.5\n", "39: bench.alpha: is 0.5: give a number below 0.5"),
        (LONG, f"{LONG}[bench]\nsession_seconds = inf\n", "39: bench.session_seconds: is inf: give a finite"),
        (LONG, f"{LONG}[bench]\nmin_rounds = 5\n", "38: bench: bench rounds: min_rounds 5 is above max_rounds 4"),
        (LONG, f"{LONG}[faults]\ntimeout_s = 0\n", "39: faults.timeout_s: is 0: give a number above 0"),
        (LONG, f"{LONG}[faults]\nfloor = 0\n", "39: faults.floor: is 0: give a number above 0"),
        (LONG, f"{LONG}[faults]\nsample = 0\n", "39: faults.sample: is 0: give a number of at least 1"),
        (LONG, f"{LONG}[triage]\nseconds = 0\n", "39: triage.seconds: is 0: give a number above 0"),
        (LONG, f"{LONG}[triage]\nchecks = -1\n", "39: triage.checks: is -1: give a number of at least 0"),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_meant_is_refused(
    repository: Path, find: str, replace: str, said: str
) -> None:
    assert broken(repository, find, replace).startswith(f"paritygate.toml:{said}")


def test_a_number_that_is_not_finite_is_refused_where_a_kind_of_arm_reads_anything(repository: Path) -> None:
    """`extra` goes into a request's body as it is, and JSON has no nan."""
    arm = (
        '[arms.far]\nkind = "http"\nurl = "http://127.0.0.1:1"\nextra = { weights = [1.0, nan] }\n\n[goldens]'
    )
    said = broken(repository, "[goldens]", arm)
    assert said == "paritygate.toml:23: arms.far.extra.weights[1]: is nan: give a finite number"


def number_types(kind: Any, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    """Every number, bounded or not, in what a struct is read from."""
    kind = kind if isinstance(kind, msgspec.inspect.Type) else msgspec.inspect.type_info(kind)
    if isinstance(kind, msgspec.inspect.StructType):
        if kind.cls in seen:
            return
        seen.add(kind.cls)
        for field in kind.fields:
            for place, number in number_types(field.type, seen):
                yield f"{kind.cls.__name__}.{field.encode_name}{place}", number
    elif isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        yield "", kind
    else:
        for inner in ("item_type", "item_types", "types", "value_type", "key_type"):
            told = getattr(kind, inner, ())
            for one in told if isinstance(told, tuple) else (told,):
                yield from number_types(one, seen)


def test_every_number_of_a_policy_has_a_range() -> None:
    """A new key cannot forget it."""
    read = [PolicyFile, CaseEntry, Fault, *(point.load().Options for point in entry_points(group=GROUP))]
    found = [one for kind in read for one in number_types(kind, set())]
    assert len(found) > 60
    open_ended = [
        place
        for place, number in found
        if (number.ge is None and number.gt is None) or (number.le is None and number.lt is None)
    ]
    assert open_ended == []


@pytest.mark.parametrize(
    ("prompt", "has"),
    [
        ("", "it has none, so nothing would be asked"),
        ('prompt = "a"\nprompt_token_ids = [1]', "it has prompt and prompt_token_ids"),
        ('prompt = "a"\nmessages = [{ role = "user", content = "b" }]', "it has prompt and messages"),
    ],
)
def test_a_case_has_one_prompt(repository: Path, prompt: str, has: str) -> None:
    said = broken(repository, 'prompt = "Good day"', prompt)
    assert said == (
        "paritygate.toml:28: cases[0]: case greeting: give exactly one of prompt, messages and prompt_token_ids: "
        + has
    )


@pytest.mark.parametrize("prompt", ['prompt = ""', "messages = []", "prompt_token_ids = []"])
def test_an_empty_prompt_is_none(repository: Path, prompt: str) -> None:
    said = broken(repository, 'prompt = "Good day"', prompt)
    assert (
        said
        == f"paritygate.toml:28: cases[0]: case greeting: {prompt.split()[0]} is empty: nothing would be asked"
    )


@pytest.mark.parametrize(
    ("find", "replace", "where"),
    [
        ('name = "greeting"', 'name = "a/b"', "cases[0]: the name 'a/b'"),
        ('name = "greeting"', 'name = ""', "cases[0]: the name ''"),
        ("[arms.fake]", '[arms."fa/ke"]', "arms.fa/ke: the name 'fa/ke'"),
        ("[claims.same]", '[claims."sa/me"]', "claims.sa/me: the name 'sa/me'"),
    ],
)
def test_a_name_with_a_slash_is_refused(repository: Path, find: str, replace: str, where: str) -> None:
    """Two checks would have one name, and one waiver would pass both."""
    assert where in broken(repository, find, replace)


@pytest.mark.parametrize(
    ("find", "replace", "said"),
    [
        ('prompt = "One"', "", "1: case[0]: case plain-one: give exactly one of prompt, prompt_file and messages"),
        ('prompt = "One"', 'prompt = "a"\nprompt_file = "b"', "1: case[0]: case plain-one: give exactly one of prompt, "
         "prompt_file and messages: it has prompt and prompt_file"),
        ('prompt = "One"', 'prompt_file = "gone"', "5: case[0].prompt_file: case plain-one: gone: "),
        ("max_tokens = 2", "max_tokens = 0", "4: case[0].max_tokens: is 0: give a number of at least 1"),
        ("max_tokens = 2", "max_tokens = nan", "4: case[0].max_tokens: is nan: give a finite number"),
        ("[[case]]", "schema = 1\n[[case]]", "1: schema: unknown key"),
    ],
)  # fmt: skip
def test_a_case_that_waits_for_a_golden_is_refused_by_its_line(
    repository: Path, find: str, replace: str, said: str
) -> None:
    path = repository / "golden" / "cases.toml"
    path.write_text(path.read_text().replace(find, replace))
    with pytest.raises(policy.PolicyError) as caught:
        policy.load(repository)
    assert str(caught.value).startswith(f"{path}:{said}")


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
