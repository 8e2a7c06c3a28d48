"""Gives every tiny checkpoint its policy and its cases: `python golden/models/members.py` writes them beside each.

`paritygate golden record --root golden/models/NAME` then asks the oracles, and `paritygate verify` at the top runs the
gates of all of them.
"""

from __future__ import annotations

import json
from pathlib import Path

from findings import (
    MLX_LM_DIFFERS,
    TRANSFORMERS_BY_LENGTH,
    TRANSFORMERS_CUTS_OTHERWISE,
    TRANSFORMERS_DIFFERS,
    TRANSFORMERS_LACKS,
)

from paritygate.golden.record import sha256_of

HERE = Path(__file__).parent
# The oracle that is asked where the other says something else than the family, or does not have it.
LACKS = dict.fromkeys(TRANSFORMERS_LACKS, "transformers does not have the family.")
ALONE = (
    ("transformers", MLX_LM_DIFFERS),
    ("mlx-lm", {**TRANSFORMERS_DIFFERS, **TRANSFORMERS_BY_LENGTH, **LACKS}),
)
BOTH = "transformers and mlx-lm in float32, with one and with two threads, say the same."
# llama's policy is written by hand: planted faults are tried against it, and it has cases of its own.
BY_HAND = ("llama",)


def oracles_of(family: str) -> tuple[list[str], int, str]:
    """Which oracles are asked, how often one of them must say the same if it stands alone, and why."""
    for oracle, findings in ALONE:
        if family in findings:
            found = findings[family]
            return [oracle], 2, f"{oracle} alone: {found if isinstance(found, str) else found[0]}"
    return ["transformers", "mlx-lm"], 0, BOTH


def main() -> None:
    policy = (HERE / "member.toml").read_text(encoding="utf-8")
    cases = (HERE / "cases.toml").read_text(encoding="utf-8")
    for checkpoint in sorted(HERE.glob("*/checkpoint")):
        family = checkpoint.parent.name
        if family in BY_HAND:
            continue
        oracles, repeats, why = oracles_of(family)
        told = {
            "family": family,
            "sha256": sha256_of(checkpoint),
            "oracles": json.dumps(oracles),
            "repeats_alone": str(repeats),
            "reason": why,
        }
        text = policy
        for name, value in told.items():
            text = text.replace("{" + name + "}", value)
        (checkpoint.parent / "paritygate.toml").write_text(text, encoding="utf-8")
        plain = family in TRANSFORMERS_CUTS_OTHERWISE
        asked = cases.replace("../flood.txt", "../flood-plain.txt") if plain else cases
        (checkpoint.parent / "cases.toml").write_text(asked, encoding="utf-8")
        print(family, "with", " and ".join(oracles))


if __name__ == "__main__":
    main()
