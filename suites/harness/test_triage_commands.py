"""What a triage says to run is run: every command of every gate sees the divergence again."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from counting_arms import VOCABULARY, CountingArm, Tokens, never
from hand_made_goldens import REASON, golden
from report_runs import run_of
from typer.testing import CliRunner, Result

from paritygate.arms import registry
from paritygate.case import Case
from paritygate.cli import app
from paritygate.golden.store import Store
from paritygate.report import write
from paritygate.stream import Stream
from paritygate.verdict import Check, Outcome, Verdict


def three_then_seven(tokens: Tokens) -> bool:
    return 3 in tokens and 7 in tokens[tokens.index(3) :]


class CountingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fault: str = ""
    timeout_s: float = 5.0


class CountingKind(CountingArm):
    """A counting engine as a kind of arm; it reads text by the code of each character."""

    Options: ClassVar[type[msgspec.Struct]] = CountingOptions
    in_process: ClassVar[bool] = False
    capabilities: ClassVar = CountingArm("any").capabilities

    def __init__(self, name: str, options: CountingOptions, model: str) -> None:
        super().__init__(name, three_then_seven if options.fault == "always" else never)
        self.remembers, self.warm = options.fault == "warm", False

    def generate(self, case: Case) -> Stream:
        if self.remembers:
            self.fault = three_then_seven if self.warm else never
        self.warm = True
        tokens = case.prompt_token_ids or tuple(ord(letter) % VOCABULARY for letter in case.prompt or "")
        return super().generate(case.with_token_ids(tokens))

    def reset(self) -> None:
        self.warm = False

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        self.reset()
        return super().repeat(case, times)


POLICY = """\
schema = 1

[checkpoint]
name = "toy"
model = "toy"
sha256 = "00"

[arms.right]
kind = "counting"

[arms.wrong]
kind = "counting"
fault = "always"

[arms.warm]
kind = "counting"
fault = "warm"

[goldens]
directory = "golden"

[envelopes.tight]
kl_mean = 1e-9
kl_max = 1e-8
max_abs_logit = 1e-3
reason = "by hand"

# The hand-made golden's logprobs are round numbers.
[envelopes.wide]
kl_mean = 1.0
kl_max = 1.0
max_abs_logit = 1.0
reason = "by hand"

[triage]
checks = 9

[[cases]]
name = "sum"
max_tokens = 4
prompt = "total: a+b/c"

[claims.golden]
kind = "golden"
arms = ["right", "wrong"]
envelope = "wide"

[claims.same]
kind = "identity"
arms = ["right", "wrong"]
cases = ["sum"]

[claims.cached]
kind = "cache"
arms = ["warm"]
repeat = ["sum"]

[claims.near]
kind = "envelope"
arms = ["right", "wrong"]
cases = ["recorded"]
envelope = "tight"
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Right, wrong and forgetful engines that count, and a golden that was counted by hand."""

    class Point:
        name = "counting"

        def load(self) -> type:
            return CountingKind

    monkeypatch.setattr(registry, "_installed", lambda: [Point()])
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "paritygate.toml").write_text(POLICY)
    (tmp_path / "golden").mkdir()
    case = Case(name="recorded", max_tokens=3, prompt="+/!")  # 3, 7, 33
    (tmp_path / "golden" / "cases.toml").write_text(
        '[[case]]\nname = "recorded"\nmax_tokens = 3\nprompt = "+/!"\n'
    )
    made = golden(case, ids=(34, 35, 36), prompt_token_ids=(3, 7, 33), text="t34 t35 t36 ", margin=2.0)
    store = Store(tmp_path / "golden")
    store.write_pending(made)
    store.accept("recorded", REASON)
    return tmp_path


def paritygate(repository: Path, *words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--root", str(repository)])


def pasted(command: str) -> Result:
    """What a shell would run, in whatever folder this is; nothing is added."""
    return CliRunner().invoke(app, shlex.split(command)[1:])


def triages(repository: Path) -> dict[str, dict]:
    told = paritygate(repository, "verify", "--tier", "fast", "--report", repository / "out")
    assert told.exit_code == 1, told.output
    checks = json.loads((repository / "out" / "report.json").read_bytes())["checks"]
    return {check["name"]: check["details"].get("triage") for check in checks if check["outcome"] == "fail"}


def test_every_command_sees_the_divergence_again(repository: Path) -> None:
    found = triages(repository)
    expected = {
        # 3 then 7 make the engine miscount; in the golden's case the fork is after 33.
        "golden/wrong/recorded": [
            "paritygate golden replay recorded --arm wrong",
            "paritygate replay recorded --arm right --arm wrong --token-ids 3,7 --max-tokens 1",
        ],
        "identity/same/wrong/sum": [
            "paritygate replay identity/same/wrong/sum",
            "paritygate replay sum --arm right --arm wrong --token-ids 3,7 --max-tokens 1",
        ],
        "cache/cached/warm/sum/hit": [
            "paritygate replay cache/cached/warm/sum/hit",
            "paritygate replay cache/cached/warm/sum/hit --token-ids 3,7 --max-tokens 1",
        ],
        "envelope/near/recorded": [
            "paritygate replay envelope/near/recorded",
            "paritygate replay recorded --arm right --arm wrong --token-ids 3,7 --max-tokens 1",
        ],
    }
    for check, commands in expected.items():
        assert found[check]["problems"] == [], check
        rooted = [f"{command} --root {repository}" for command in commands]
        assert found[check]["reproduce"] == rooted, check
        for command in rooted:
            told = pasted(command)
            assert told.exit_code == 1, (command, told.output)
            assert "DIVERGED" in told.output, command


def test_commands_work_where_the_run_was_started(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run at the root nothing is added; from the folder above it, the root as it was named."""
    name = "identity/same/wrong/sum"
    for place, given, added in ((repository, (), ""), (repository.parent, ("--root", repository.name), None)):
        monkeypatch.chdir(place)
        CliRunner().invoke(app, ["verify", "--only", "identity", "--report", str(repository / "out"), *given])
        checks = json.loads((repository / "out" / "report.json").read_bytes())["checks"]
        commands = next(c["details"]["triage"]["reproduce"] for c in checks if c["name"] == name)
        ending = f" --root {repository.name}" if added is None else added
        assert commands[0] == f"paritygate replay {name}{ending}"
        for command in commands:
            assert pasted(command).exit_code == 1, command


def test_commands_of_a_run_under_a_bar_are_held_to_it_too(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change takes the faulty engine out of its own claim: only under the base's policy is there a check."""
    monkeypatch.chdir(repository)

    def git(*words: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", *who, *words], cwd=repository, check=True, capture_output=True)

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "base")
    path = repository / "paritygate.toml"
    path.write_text(path.read_text().replace('fault = "always"', 'fault = ""'))
    told = CliRunner().invoke(
        app, ["verify", "--only", "identity", "--only", "golden", "--bar", "HEAD", "--report", "out"]
    )
    assert told.exit_code == 1, told.output
    checks = json.loads((repository / "out" / "report.json").read_bytes())["checks"]
    commands = [line for c in checks for line in (c["details"].get("triage") or {}).get("reproduce", ())]
    assert len(commands) == 4
    for command in commands:
        assert command.endswith(" --bar HEAD")
        assert pasted(command).exit_code == 1, command
        assert pasted(command.removesuffix(" --bar HEAD")).exit_code == 0, command


def test_the_same_commands_pass_where_the_fault_is_gone(repository: Path) -> None:
    path = repository / "paritygate.toml"
    path.write_text(path.read_text().replace('fault = "always"', "").replace('fault = "warm"', ""))
    for command in (
        "golden replay recorded --arm wrong", "replay identity/same/wrong/sum",
        "replay sum --arm right --arm wrong --token-ids 3,7 --max-tokens 1",
    ):  # fmt: skip
        told = paritygate(repository, *shlex.split(command))
        assert told.exit_code == 0, (command, told.output)
        assert "IDENTICAL" in told.output


def test_logprobs_outside_the_envelope_read_like_a_red_and_are_looked_into(repository: Path) -> None:
    """The golden says -0.1 of 34; among e^4, e^2 and 38 ones the right engine gives it 4 - ln(e^4 + e^2 + 38)."""
    path = repository / "paritygate.toml"
    path.write_text(path.read_text().replace('envelope = "wide"', 'envelope = "tight"'))
    name = "golden/right/golden/logprobs"
    told = paritygate(repository, "verify", "--only", "golden", "--report", repository / "out")
    assert told.exit_code == 1
    logprob = 4 - math.log(math.exp(4) + math.exp(2) + 38)
    expected = (
        f"logprobs outside the envelope 'tight' in 1 of 1 answers; the worst is recorded: at token 0 the logprob of "
        f"'t34' (34) is {logprob:.6g} where -0.1 is expected: {-0.1 - logprob:.3g} apart, 0.001 is allowed"
    )
    assert expected in " ".join(told.output.split())
    checks = json.loads((repository / "out" / "report.json").read_bytes())["checks"]
    triage = next(check["details"]["triage"] for check in checks if check["name"] == name)
    assert triage["problems"] == []
    findings = " ".join(triage["findings"])
    for part in (
        "settings: ",
        "right says the same at all 3 positions",
        "KL(",
        "layers: ",
        "not searched, both",
    ):
        assert part in findings, part
    commands = [f"paritygate replay {name}", "paritygate golden replay recorded --arm right"]
    assert triage["reproduce"] == [f"{command} --root {repository}" for command in commands]
    for command in triage["reproduce"]:
        again = pasted(command)
        assert again.exit_code == 1, again.output
        assert expected in " ".join(again.output.split())
    explained = CliRunner().invoke(app, ["explain", str(repository / "out"), name])
    assert expected in " ".join(explained.output.split())
    assert f"see it again: paritygate replay {name}" in explained.output
    looked_into = paritygate(repository, "replay", name, "--triage")
    assert "KL(" in looked_into.output


def test_every_check_of_a_run_can_be_replayed(repository: Path) -> None:
    """Each name that verify prints, but that of the store, names a check that replay finds and that says the same."""
    paritygate(repository, "verify", "--tier", "fast", "--report", repository / "out")
    checks = json.loads((repository / "out" / "report.json").read_bytes())["checks"]
    assert len(checks) >= 8
    for check in checks:
        if check["name"] != "golden/store":
            told = paritygate(repository, "replay", check["name"])
            assert f"{check['name']}  {check['outcome']}  {check['verdict']}" in told.output, told.output


def test_a_golden_is_replayed_by_the_claims_that_hold_it(repository: Path) -> None:
    """Two claims, each with an arm of its own: every check is made once. An arm of neither is asked all the same."""
    path = repository / "paritygate.toml"
    text = path.read_text().replace('arms = ["right", "wrong"]\nenvelope = "wide"', 'arms = ["right"]')
    path.write_text(f'{text}\n[claims.other]\nkind = "golden"\narms = ["wrong"]\npromise = "decided"\n')
    for given, expected in (
        ((), ["golden/right/recorded", "golden/wrong/recorded"]),
        (("--arm", "right"), ["golden/right/recorded"]),
        (("--arm", "warm", "recorded"), ["golden/warm/recorded"]),
    ):
        told = paritygate(repository, "golden", "replay", *given).output
        # Arms run side by side: whichever is done first speaks first.
        assert sorted(re.findall(r"golden/\w+/recorded(?=:)", told)) == expected, told


def test_a_run_looks_into_so_many_divergences_and_says_how_to_ask_for_the_rest(repository: Path) -> None:
    path = repository / "paritygate.toml"
    path.write_text(path.read_text().replace("checks = 9", "checks = 2"))
    found = {name: told for name, told in triages(repository).items() if told}
    assert sum(told["full"] for told in found.values()) == 2
    name, later = next((name, told) for name, told in found.items() if not told["full"])
    assert later["reproduce"]
    command = f"paritygate replay {name} --triage --root {repository}"
    assert f"run `{command}`" in later["findings"][-1]
    told = pasted(command)
    assert told.exit_code == 1
    assert "smallest prompt: 2 of" in told.output.replace("\n", " ")


def test_explain_prints_the_triage_and_commands_that_can_be_copied(repository: Path) -> None:
    triages(repository)
    told = CliRunner().invoke(app, ["explain", str(repository / "out"), "identity/same/wrong/sum"])
    assert told.exit_code == 0
    assert "  triage:\n" in told.output
    assert "wrong forks at token 0 and 3 time(s) later" in told.output.replace("\n", " ").replace("  ", " ")
    assert "fork at 0: 't20 ' (20)" in told.output
    command = (
        f"paritygate replay sum --arm right --arm wrong --token-ids 3,7 --max-tokens 1 --root {repository}"
    )
    assert (
        f"see it again: {command}" in told.output.splitlines()[-8:]
        or f"see it again: {command}\n" in told.output
    )


def test_the_page_draws_the_triage(repository: Path) -> None:
    triages(repository)
    page = (repository / "out" / "index.html").read_text()
    assert page.count('<div class="triage">') == 5  # golden, identity, two hits, envelope
    assert f'<pre class="command">paritygate replay identity/same/wrong/sum --root {repository}</pre>' in page
    assert "layer 1, mlp is the first that differs" in page
    assert 'class="tap above"' in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("replay", "identity/same/wrong/product"), "no case is named 'product'"),
        (("replay", "identity/same/nobody/sum"), "no claim of this policy makes a check named"),
        (("replay", "sum"), "is no check that can be replayed"),
        (("replay", "bench/decode"), "is no check that can be replayed"),
        (("replay", "sum", "--arm", "right"), "1 arm(s) are named: name two"),
        (("replay", "sum", "--arm", "right", "--arm", "left"), "no arm is named 'left'"),
        (("replay", "sum", "--arm", "right", "--arm", "wrong", "--token-ids", "1,x"), "is not a list of token ids"),
        (("replay", "golden/wrong/recorded", "--token-ids", "3"), "a golden knows its own prompt alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_said_in_a_line(
    repository: Path, words: tuple[str, ...], said: str
) -> None:
    told = paritygate(repository, *words)
    assert told.exit_code == 2, told.output
    assert said in told.output
    assert len(told.output.splitlines()) == 1


REPORTS = {
    "nothing": (None, "there is no report: run `paritygate verify --report"),
    "cut": ('{"schema": 1, "checks": [{"name": "a", "outc', "report of a run"),
    "other": ('{"checks": [{"name": "a"}]}', "report of a run"),
    "list": ("[]", "report of a run"),
    "bytes": ("\ud800", "report of a run"),
}


@pytest.mark.parametrize("kind", REPORTS)
def test_explain_says_in_a_line_why_there_is_no_evidence(tmp_path: Path, kind: str) -> None:
    text, said = REPORTS[kind]
    if text is not None:
        (tmp_path / "report.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    for place in (tmp_path, tmp_path / "report.json"):
        told = CliRunner().invoke(app, ["explain", str(place), "a"])
        assert told.exit_code == 2
        assert said in told.output
        assert len(told.output.splitlines()) == 1


def test_a_run_that_ended_before_its_first_check_explains_nothing(tmp_path: Path) -> None:
    write(run_of([], {}), tmp_path)
    told = CliRunner().invoke(app, ["explain", str(tmp_path), "a"])
    assert told.exit_code == 2
    assert len(told.output.splitlines()) == 1


def test_evidence_that_was_cut_is_printed_as_it_is(tmp_path: Path) -> None:
    details = {"at": {"reference": None}, "triage": {"reanchor": {"forks": [{}]}}, "byte": 3}
    write(run_of([Check("g", "a", Outcome.FAIL, Verdict.DIVERGED, "h", {})], {}), tmp_path)
    path = tmp_path / "report.json"
    document = json.loads(path.read_bytes())
    document["checks"][0]["details"] = details
    path.write_text(json.dumps(document))
    told = CliRunner().invoke(app, ["explain", str(tmp_path), "a"])
    assert told.exit_code == 0
    assert "the evidence is cut or of another version" in told.output
    assert "byte: 3" in told.output
