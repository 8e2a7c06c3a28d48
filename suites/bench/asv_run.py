"""`make asv`: time HEAD and one earlier commit, and publish the site into .asv/html."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from paritygate.bench.base import NoBase, choose_base
from paritygate.bench.pairs import BenchError, git

ROOT = Path(__file__).resolve().parents[2]


def asv(*words: str, quiet: bool = False) -> None:
    """Run asv with the interpreter of this environment; its failure is ours."""
    # Threads are set before numpy and torch size their pools.
    environment = os.environ | dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
    )
    done = subprocess.run(
        [sys.executable, "-m", "asv", *words], cwd=ROOT, env=environment, capture_output=quiet
    )
    if done.returncode:
        sys.exit(f"asv {words[0]} ended with {done.returncode}")


def missing(commit: str) -> list[str]:
    """The benchmarks of a commit that have no value: asv itself passes over them in silence."""
    found = [path for path in (ROOT / ".asv" / "results").glob(f"*/{commit[:8]}-*.json")]
    if not found:
        return [f"no result of {commit[:8]} at all"]
    document = json.loads(found[-1].read_text())
    place = document["result_columns"].index("result")
    return [
        name for name, columns in document["results"].items() if not columns[place] or None in columns[place]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--base", default="", help="the earlier commit; HEAD's parent or branch point without it"
    )
    parser.add_argument("--bench", default=".", help="only benchmarks that match this regular expression")
    arguments = parser.parse_args()
    try:
        base = choose_base(ROOT, arguments.base or "HEAD~1")
    except (NoBase, BenchError) as error:
        sys.exit(f"nothing to compare HEAD with: {error}")
    commits = [git(ROOT, "rev-parse", revision) for revision in (base.revision, "HEAD")]
    if git(ROOT, "status", "--porcelain", "--", "engine"):
        print("asv times commits: what is uncommitted in engine/ is not measured", file=sys.stderr)
    asv("machine", "--yes", quiet=True)
    for commit in commits:
        print(f"== {git(ROOT, 'log', '-1', '--format=%h %s', commit)}", flush=True)
        asv("run", f"{commit}^!", "--show-stderr", "--bench", arguments.bench)
        if lost := missing(commit):
            sys.exit(f"{commit[:8]} was not timed: {', '.join(lost)}")
    asv("publish")
    print(
        f"The site is in {(ROOT / '.asv' / 'html' / 'index.html').relative_to(ROOT)}; asv preview serves it."
    )


if __name__ == "__main__":
    main()
