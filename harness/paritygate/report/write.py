"""Write a report: report.json, junit.xml and index.html."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from paritygate.faults.matrix import document as matrix_document
from paritygate.report.faults_page import faults_page
from paritygate.report.junit import junit
from paritygate.report.page import page
from paritygate.run import Run


def write(run: Run, directory: Path) -> Path:
    """Write all three files; returns the page's path. Each is whole or is not replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    shown = portable(run)
    document = json.dumps(
        _storable(shown.to_json()), indent=1, ensure_ascii=False, allow_nan=False, default=str
    )
    files = {
        "report.json": document.encode(),
        "junit.xml": junit(shown),
        "index.html": page(shown).encode(),
    }
    if trials := [check.details["trial"] for check in shown.checks if "trial" in check.details]:
        machine = f"{shown.machine.processor}, {shown.machine.cores} cores"
        matrix = matrix_document(trials, commit=shown.commit[:10], started=shown.started, machine=machine)
        files["faults.html"] = faults_page(matrix).encode()
    for name, content in files.items():
        unfinished = directory / f".{name}.writing"
        unfinished.write_bytes(content)
        unfinished.replace(directory / name)
    return directory / "index.html"


def portable(run: Run) -> Run:
    """The run without this machine's folders: paths below the checkout are relative, the home folder is `~`."""
    places = {f"{Path.cwd()}/": "", str(Path.cwd()): ".", f"{Path.home()}/": "~/"}
    checks = tuple(
        replace(check, headline=_relative(check.headline, places), details=_relative(check.details, places))
        for check in run.checks
    )
    return replace(run, checks=checks, manifests=_relative(run.manifests, places))


def _relative(value: Any, places: dict[str, str]) -> Any:
    if isinstance(value, str):
        for place, short in places.items():
            value = value.replace(place, short)
        return value
    if isinstance(value, dict):
        return {key: _relative(item, places) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_relative(item, places) for item in value]
    return value


def _storable(value: Any) -> Any:
    # JSON has no NaN and no infinity, a reader gets null; UTF-8 has no half characters, a reader gets their escapes.
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {_storable(str(key)): _storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    return value
