"""The policies that the pages on engines show are short, load, and claim what their arms can give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paritygate.arms.dialects import DIALECTS
from paritygate.policy import load

DOCS = Path(__file__).parents[2] / "docs" / "engines"
NAMES = (
    "transformers", "mlx-lm", "mlx-lm-server", "llama.cpp", "llama-server", "openai-compatible", "command-line",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_shown_policy_is_short_and_loads(name: str, tmp_path: Path) -> None:
    text = (DOCS / f"{name}.toml").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 30
    (tmp_path / "paritygate.toml").write_text(text, encoding="utf-8")
    policy = load(tmp_path)
    assert policy.claims
    assert policy.cases


def test_every_policy_has_its_page_and_its_row() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert {path.stem for path in DOCS.glob("*.toml")} == set(NAMES)
    for name in NAMES:
        assert f"[toml]({name}.toml)" in index
        assert f"({name}.toml)" in (DOCS / f"{name}.md").read_text(encoding="utf-8")


def test_the_table_of_dialects_says_what_the_arm_does() -> None:
    page = (DOCS / "openai-compatible.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in page.splitlines()
        if line.startswith("| ")
    ]
    names = [cell.strip("`") for cell in rows[0][1:]]
    assert set(names) == set(DIALECTS)
    told = 0
    for first, *cells in rows[1:]:
        for field in re.findall(r"`(\w+)`", first):
            for name, cell in zip(names, cells, strict=True):
                sent = DIALECTS[name].fields.get(field)
                assert (sent is None) == (cell == "no"), (field, name)
                if sent is not None and len(sent) == 1 and sent[0] != field:
                    assert cell == f"`{sent[0]}`"
                told += 1
    assert told == 9 * len(DIALECTS)


def test_the_measured_policy_loads() -> None:
    policy = load(DOCS / "measured")
    assert {arm.kind for arm in policy.arms.values()} == {
        "tokenline",
        "transformers",
        "mlx-lm",
        "llama.cpp",
        "http",
    }
