"""What the harness adds to the engine: the same streams, asked by `paritygate golden replay` and by the engine alone.

`python suites/bench/harness_cost.py --rounds 3` runs both in fresh processes, one after the other and in turn (ABBA),
and prints the ratio of their wall times. The engine alone loads the model once and generates every golden's case with
the same parameters; the harness does that in a hosted process, compares, and looks at logprobs and counters.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paritygate import policy as policies
from paritygate.arms.tokenline_inprocess import parameters

RAW = """
import json, sys
import tokenline
asked = json.load(open(sys.argv[1]))
with tokenline.load(asked["model"], **asked["options"]) as model:
    for prompt, given in asked["requests"]:
        model.reset_cache()
        for event in model.stream(prompt, **given):
            pass
"""


def requests_of(root: Path, arm: str) -> dict[str, object]:
    """What the golden gate asks of an arm, as the engine takes it."""
    policy = policies.load(root)
    spec = policy.arms[arm]
    options = {key: spec.options[key] for key in ("backend", "dtype", "threads") if key in spec.options}
    asked = [(case.prompt, parameters(case)) for case in policy.golden_cases(root)]
    return {"model": policy.checkpoint.location, "options": options, "requests": asked}


def wall(words: list[str]) -> float:
    """Seconds of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path())
    parser.add_argument("--arm", default="torch")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        asked = Path(scratch) / "asked.json"
        asked.write_text(json.dumps(requests_of(arguments.root, arguments.arm)))
        raw = [sys.executable, "-c", RAW, str(asked)]
        replay = [sys.executable, "-m", "paritygate", "golden", "replay", "--arm", arguments.arm]
        replay += ["--root", str(arguments.root)]
        wall(raw)  # the files of both are in memory from here on
        ratios = []
        for number in range(arguments.rounds):
            order = [raw, replay] if number % 2 == 0 else [replay, raw]
            first, second = (wall(words) for words in order)
            alone, gated = (first, second) if order[0] is raw else (second, first)
            ratios.append(gated / alone)
            line = f"engine alone {alone:.2f} s, replay {gated:.2f} s, ratio {ratios[-1]:.3f}"
            print(f"round {number + 1}: {line}", flush=True)
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(f"the harness adds {statistics.median(ratios) - 1:+.1%} (median of {len(ratios)} rounds, {spread})")


if __name__ == "__main__":
    main()
