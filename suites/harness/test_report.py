"""Reports of made-up runs: complete, self-contained, escaped, without this machine's folders."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_runs import green_run, red_run, replayed, run_of
from rich.console import Console

from paritygate.report import print_table, write
from paritygate.report.headline import advice, headline
from paritygate.report.page import aligned
from paritygate.report.plots import ticks
from paritygate.run import Run
from paritygate.verdict import Check, Exit, Outcome, Verdict

VOID = {"meta", "link", "br", "img", "hr", "input", "line", "rect", "circle", "polyline"}


class Page(HTMLParser):
    """Checks that elements nest, and gathers ids, links and outside references."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href" and (value or "").startswith("#"):
                self.links.append((value or "")[1:])
            elif name in ("src", "href", "action"):
                self.outside.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def files(run: Run, directory: Path) -> tuple[str, dict, ET.Element]:
    index = write(run, directory)
    assert sorted(path.name for path in directory.iterdir()) == ["index.html", "junit.xml", "report.json"]
    document = json.loads((directory / "report.json").read_text())
    return index.read_text(), document, ET.parse(directory / "junit.xml").getroot()


@pytest.mark.parametrize("run", [green_run(), red_run()], ids=["green", "red"])
def test_the_page_nests_links_to_what_it_has_and_asks_for_nothing_outside(run: Run, tmp_path: Path) -> None:
    text, _, _ = files(run, tmp_path)
    page = Page(text)
    assert page.outside == []
    assert "script" not in page.tags
    assert "url(" not in text
    assert set(page.links) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert sum(link.startswith("golden-") for link in page.links) == sum(
        c.gate == "golden" for c in run.checks
    )


def test_a_green_page_says_so_first(tmp_path: Path) -> None:
    text, document, _ = files(green_run(), tmp_path)
    assert "<h1>The engine says the same thing, as fast as before: 35 checks passed.</h1>" in text
    assert "What did not pass" not in text
    assert (document["schema"], document["verdict"], document["exit"]) == (1, "pass", 0)


def test_a_red_page_shows_where_and_what_was_expected(tmp_path: Path) -> None:
    text, _, _ = files(red_run(), tmp_path)
    assert '<p class="word"><span class="dot"></span>failed</p>' in text
    shown = re.sub(r"<i>(.)</i>", r"\1", text)
    for words in ("·wait", "·sleep", "1.3200", "engine/tokenline/scheduler.py:91", "21.0 % slower", "30 tokens alike",
                  "expected (golden)", "got (mlx)", "confirmed in a second session"):  # fmt: skip
        assert words in shown, words
    assert "&lt;b&gt;&amp;" in text  # a token that looks like markup is text
    assert "<b>&" not in text


def test_the_json_holds_every_check_and_only_finite_numbers(tmp_path: Path) -> None:
    run = replace(red_run(), figures={"decode": {"ns": float("nan"), "unit": "ns per token"}})
    write(replace(run, figures={}), tmp_path)
    document = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert [check["name"] for check in document["checks"]] == [check.name for check in run.checks]
    assert document["exit"] == 1
    checks = [Check("g", "g/a", Outcome.PASS, Verdict.HELD, "held", {"bound": float("inf")})]
    write(run_of(checks, {}), tmp_path)
    assert '"bound": null' in (tmp_path / "report.json").read_text()


def test_junit_counts_what_it_holds(tmp_path: Path) -> None:
    run = red_run()
    _, _, root = files(run, tmp_path)
    assert root.tag == "testsuites"
    cases = root.findall("testsuite/testcase")
    assert len(cases) == len(run.checks) == int(root.get("tests", 0))
    for suite in root.findall("testsuite"):
        for key, kind in (("failures", "failure"), ("errors", "error")):
            assert int(suite.get(key, -1)) == len(suite.findall(f"testcase/{kind}"))
        assert int(suite.get("tests", -1)) == len(suite.findall("testcase"))
        assert float(suite.get("time", -1)) > 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
    assert (root.get("failures"), root.get("errors")) == ("3", "2")
    (decode,) = [case for case in cases if case.get("name") == "bench/decode"]
    assert "21.0 % slower" in decode.find("failure").get("message")


def test_no_file_names_a_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = f"{tmp_path}/engine/x.py"
    check = Check(
        "g", "g/a", Outcome.FAIL, Verdict.BROKEN, f"{place}:1 is wrong", {"rest": [place, f"{Path.home()}/m"]}
    )
    write(run_of([check], {}), tmp_path / "out")
    for file in (tmp_path / "out").iterdir():
        text = file.read_text()
        assert str(tmp_path) not in text
        assert "engine/x.py" in text
        assert f"{Path.home()}/m" not in text


def test_the_table_ends_with_the_verdict_and_names_every_failure() -> None:
    console = Console(width=120, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    print_table(red_run(), console)
    text = console.export_text()
    for name in (
        "golden/mlx/chat-moon",
        "structure/one definition of the max-token test",
        "bench/decode",
        "bench/prefill",
    ):
        assert name in text
    assert text.rstrip().splitlines()[-2:][0].startswith("FAILED") or "FAILED  3 of 37 checks failed" in text


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (run_of([], {}), "Nothing was tested."),
        (run_of([replayed("a")], {}), "The engine says the same thing: 1 check passed."),
        (replace(green_run(), interrupted=True, exit=Exit.INCONCLUSIVE), "Interrupted after 35 checks"),
        (
            run_of([Check("g", "g/a", Outcome.FAIL, Verdict.BROKEN, "It broke. Why.")], {}),
            "g/a failed: It broke.",
        ),
    ],
)
def test_the_headline_is_one_sentence(run: Run, says: str) -> None:
    assert headline(run).startswith(says)


def test_an_empty_run_can_be_written_and_is_not_green(tmp_path: Path) -> None:
    text, document, root = files(run_of([], {}), tmp_path)
    assert document["verdict"] == "could not run"
    assert "Nothing was tested." in text
    assert root.get("tests") == "0"


def test_long_agreement_is_folded_around_a_difference() -> None:
    tokens = [[i, i, "x"] for i in range(50)]
    blocks = [
        {"op": "equal", "reference": tokens, "candidate": tokens},
        {"op": "insert", "reference": [], "candidate": [[50, 9, "y"]]},
        {"op": "equal", "reference": tokens, "candidate": tokens},
    ]
    found = aligned(blocks)
    assert [(b["op"], len(b["reference"]), b["hidden"]) for b in found] == [
        ("fold", 0, 40), ("equal", 10, 0), ("insert", 0, 0), ("equal", 10, 0), ("fold", 0, 40),
    ]  # fmt: skip
    assert aligned(blocks[:1]) == []


def test_ticks_are_round_and_reach_the_top() -> None:
    assert ticks(63.0) == [0, 20, 40, 60]
    assert ticks(0.0) == [0.0]


def test_an_interrupted_run_is_told_to_finish_and_not_to_quieten_the_machine() -> None:
    run = replace(green_run(), checks=(), interrupted=True, exit=Exit.INCONCLUSIVE)
    assert headline(run) == "Interrupted before the first check."
    assert "let it finish" in advice(run)


def test_the_page_says_once_what_the_worst_check_says(tmp_path: Path) -> None:
    """Under its heading is the verdict; the sentence stands with the check."""
    write(red_run(), tmp_path)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<h1>3 of 37 checks failed; first golden/mlx/chat-moon.</h1>" in text
    header, _, rest = text.partition("</header>")
    assert "first differs" not in header
    assert "first differs at token 20" in rest
    # On a narrow page, where the names of the columns are not shown, each cell says its own.
    table = rest.partition('<table class="top">')[2].partition("</table>")[0]
    assert re.findall(r"<td[^>]*>", table) == [
        f'<td data-name="{name}">'
        for _ in range(2)
        for name in ("token", "first choice", "second choice", "gap")
    ]
