"""What an engine prints steers no terminal, hides in no page, and breaks no XML."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import green_run
from typer.testing import CliRunner

from paritygate.cli import app
from paritygate.console import Console
from paritygate.faults.markdown import markdown
from paritygate.report import print_table, write
from paritygate.report.junit import junit
from paritygate.shown import shown
from paritygate.verdict import Check, Outcome, Verdict, exit_code

# Clears the screen, retitles the window, returns the carriage, reverses what follows, ends a string, is half a pair.
STEERING = "\x1b[2J\x1b]0;title\x07\r\x00\x7f\x9b31m\u202e\ud800\uffff"
WRITTEN = r"\x1b[2J\x1b]0;title\x07\r\x00\x7f\x9b31m\u202e\ud800\uffff"


def steers(text: str) -> list[str]:
    """The characters that do something beside being shown."""
    return [char for char in text if not char.isprintable() and char not in "\n\t\N{NO-BREAK SPACE}"]


def test_it_is_written_out_and_the_rest_is_as_it_was() -> None:
    assert shown(f"a{STEERING}b") == f"a{WRITTEN}b"
    kept = "plain\ttabs\nlines \\x1b é 中 🎉 👩\u200d🚀 שלום ␛"
    assert shown(kept) == kept


def test_a_report_holds_it_written_out(tmp_path: Path) -> None:
    check = Check(
        "identity", f"identity/{STEERING}", Outcome.FAIL, Verdict.DIVERGED, f"it said {STEERING!s}",
        {
            "printed": STEERING,
            "diff": [{"op": "insert", "reference": [], "candidate": [[0, 1, STEERING]]}],
            "at": {side: {"token_id": 1, "token": STEERING, "gap": 1.0, "top": [[1, STEERING, -0.5]]}
                   for side in ("reference", "candidate")},
        },
    )  # fmt: skip
    run = replace(green_run(), checks=(check,), exit=exit_code([check]))
    write(run, tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert steers(page) == []
    assert WRITTEN in page
    told = ET.fromstring((tmp_path / "junit.xml").read_bytes())
    assert steers("".join(told.itertext())) == []
    assert [case.get("name") for case in told.iter("testcase")] == [f"identity/{WRITTEN}"]
    assert ET.fromstring(junit(run)) is not None
    document = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert document["checks"][0]["details"]["printed"] == STEERING.replace("\ud800", r"\ud800")
    said = io.StringIO()
    print_table(run, Console(file=said, width=400))
    assert steers(said.getvalue()) == []
    assert WRITTEN in said.getvalue()
    told_again = CliRunner().invoke(app, ["explain", str(tmp_path), "identity"])
    assert told_again.exit_code == 0
    assert steers(told_again.output) == []
    assert told_again.output.count(r"\x1b[2J") >= 2  # in the name and in the headline


@pytest.mark.parametrize("markup", [True, False])
def test_a_console_writes_it_out_and_keeps_its_own_colours(markup: bool) -> None:
    said = io.StringIO()
    Console(file=said, force_terminal=True, width=200, color_system="standard").print(
        STEERING.replace("[", "("), style="red", markup=markup, highlight=False
    )
    assert said.getvalue() == f"\x1b[31m{WRITTEN.replace('[', '(')}\x1b[0m\n"


def test_a_matrix_as_markdown_writes_it_out() -> None:
    trial = {"fault": "f", "room": "engine", "defect": STEERING, "state": "survived", "expect": "red", "gates": [],
             "first_red": None, "named_by": None, "reds": [], "note": STEERING}  # fmt: skip
    matrix = dict.fromkeys(
        (
            "caught",
            "tried",
            "named",
            "not_applicable",
            "clean_runs",
            "clean_red",
            "commit",
            "started",
            "machine",
        ),
        0,
    )
    assert steers(markdown(matrix | {"trials": [trial]})) == []


def test_an_engine_that_prints_it_is_told_of_without_it(repository: Path) -> None:
    (repository / "engine.py").write_text(
        "import os, sys\nprint(chr(27) + '[2J' + chr(7) + str(os.getpid()), end='')\nsys.exit(0)\n"
    )
    for fails in (False, True):
        if fails:
            (repository / "engine.py").write_text("import sys\nsys.exit(chr(27) + '[2J')\n")
        told = CliRunner().invoke(
            app,
            ["verify", "--root", str(repository), "--only", "identity", "--report", str(repository / "out")],
        )
        assert told.exit_code in (3, 4), told.output
        shown_again = CliRunner().invoke(app, ["explain", str(repository / "out"), "same"])
        assert steers(told.output + shown_again.output) == []
        assert r"\x1b[2J" in shown_again.output
