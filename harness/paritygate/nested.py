"""The gates of another policy, run in a process of their own, and the report that they leave."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.arms import leashed
from paritygate.scratch import scratch

# Settings of this run that would point another at something else.
OURS = ("PARITYGATE_MODEL", "PARITYGATE_BASE", "PARITYGATE_CHECKPOINT", "PYTEST_ADDOPTS")


@dataclass(frozen=True)
class Nested:
    """Python commands in the folder `cwd`, with `extra` variables, each for at most `timeout_s` seconds."""

    cwd: Path
    timeout_s: float
    extra: Mapping[str, str]

    def command(self, words: Sequence[str], extra: Mapping[str, str] | None = None) -> tuple[int | None, str]:
        """Exit status (None where it hung) and output."""
        kept = {name: value for name, value in os.environ.items() if name not in OURS}
        with tempfile.TemporaryFile() as printed:
            # On a leash: whoever is killed meanwhile leaves no gates running behind.
            process = leashed.start(
                [sys.executable, *words],
                stdout=printed,
                stderr=subprocess.STDOUT,
                cwd=self.cwd,
                env={**kept, "NO_COLOR": "1", "COLUMNS": "200", **self.extra, **(extra or {})},
            )
            status: int | None = None
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(self.timeout_s)
            finally:
                # Asked first, so that it stops in good order what it started itself.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.terminate()
                    process.wait(10)
                leashed.end(process)
            printed.seek(0)
            return status, printed.read().decode(errors="replace")

    def verified(self, root: Path, options: Sequence[str]) -> tuple[Mapping[str, Any] | None, str]:
        """The report of `verify` at `root`, or None and why there is none."""
        with scratch("report") as report:
            words = ["-m", "paritygate", "verify", "--root", str(root), "--report", str(report), *options]
            status, printed = self.command(words)
            try:
                return json.loads((report / "report.json").read_bytes()), printed
            except (OSError, ValueError):
                what = "hung" if status is None else f"ended with {status}"
                return None, f"the gates {what} without a report: {printed.strip()[-600:]}"
