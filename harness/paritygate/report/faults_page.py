"""The kill matrix as a self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.report.page import environment


def faults_page(matrix: Mapping[str, Any]) -> str:
    """The HTML document of one run of `paritygate faults` (the document of faults.json)."""
    return environment().get_template("faults.html.j2").render(matrix=matrix)
