"""A run as JUnit XML: a suite for each gate, a case for each check."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from paritygate.report.headline import by_gate
from paritygate.run import Run
from paritygate.shown import shown
from paritygate.verdict import Check, Outcome


def junit(run: Run) -> bytes:
    """The document, UTF-8. An undecided check and one that could not run are errors: neither passed nor failed."""
    root = ET.Element("testsuites", name="paritygate", time=f"{run.seconds:.3f}")
    totals = dict.fromkeys(("tests", "failures", "errors"), 0)
    for gate, checks in by_gate(run.checks).items():
        suite = ET.SubElement(root, "testsuite", name=gate, timestamp=run.started.replace("+00:00", ""))
        tally = {
            "tests": len(checks),
            "failures": sum(c.outcome is Outcome.FAIL for c in checks),
            "errors": sum(c.outcome in (Outcome.COULD_NOT_RUN, Outcome.INCONCLUSIVE) for c in checks),
        }
        for key, count in tally.items():
            suite.set(key, str(count))
            totals[key] += count
        suite.set("skipped", "0")
        suite.set("time", f"{sum(c.seconds for c in checks):.3f}")
        for check in checks:
            _case(suite, check)
    for key, count in totals.items():
        root.set(key, str(count))
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)


def _case(suite: ET.Element, check: Check) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"paritygate.{check.gate}",
        name=shown(check.name),
        time=f"{check.seconds:.3f}",
    )
    if check.outcome is Outcome.PASS:
        ET.SubElement(case, "system-out").text = shown(f"{check.verdict}: {check.headline}")
        return
    kind = "failure" if check.outcome is Outcome.FAIL else "error"
    problem = ET.SubElement(case, kind, message=shown(check.headline), type=str(check.verdict))
    problem.text = shown(json.dumps(check.details, indent=1, ensure_ascii=False, default=str)[:20_000])
