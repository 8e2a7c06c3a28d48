"""A run of pytest that skips more than it may, or measured nothing of what it selected, is not green."""

from __future__ import annotations

from typing import ClassVar

import pytest


def register_budget(config: pytest.Config) -> None:
    """Watch what pytest reports. Raises UsageError for a budget that is no number."""
    # A worker of pytest-xdist sends its reports to the process that started it, which counts.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Budget(_limit(config.getini("parity_skips"))), "parity-budget")


def _limit(text: str | None) -> int | None:
    if text is None or not text.strip():
        return None
    if not text.strip().isdigit():
        raise pytest.UsageError(f"parity_skips = {text}: write how many tests may be skipped, 0 or more")
    return int(text)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if expected := getattr(report, "wasxfail", ""):
        return f"fails as expected: {expected.removeprefix('reason: ')}"
    told = report.longrepr
    text = told[2] if isinstance(told, tuple) else str(told)
    return text.removeprefix("Skipped: ").strip() or "no reason given"


class Budget:
    """Counts what reports say, so that it counts the same under pytest-xdist."""

    SELECTED: ClassVar[str] = "parity_claim"
    MEASURED: ClassVar[str] = "parity_checks"

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.skipped: dict[str, str] = {}
        self.selected: set[str] = set()
        self.measured: set[str] = set()

    @property
    def faults(self) -> list[str]:
        """Sentences; none where the session may be green."""
        said = []
        if self.limit is not None and len(self.skipped) > self.limit:
            said.append(f"{len(self.skipped)} tests were skipped, the budget (parity_skips) is {self.limit}:")
            said += [f"  {name}: {reason}" for name, reason in self.skipped.items()]
        if self.selected and not self.measured:
            said.append(
                f"{len(self.selected)} parity tests were selected and none ran a check: nothing was measured"
            )
        return said

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped[f"{report.nodeid} (the whole module)"] = _reason(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped[report.nodeid] = _reason(report)
        for name, value in report.user_properties:
            if name == self.SELECTED:
                self.selected.add(report.nodeid)
            elif name == self.MEASURED and isinstance(value, int) and value > 0:
                self.measured.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        green = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self.faults and session.exitstatus in green:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.faults:
            terminalreporter.section("not green", sep="=", red=True, bold=True)
            for line in self.faults:
                terminalreporter.write_line(line)
