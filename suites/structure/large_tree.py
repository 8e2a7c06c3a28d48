"""A tree of as many lines as wanted, and how long the rules take over it: `python suites/structure/large_tree.py`.

Python modules of about 500 lines in packages, classes that call each other through annotated receivers, imports,
docstrings and comments; and Rust files of the same size. One module in fifty names what the rules are about, under its
own name, an alias or a re-export.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import msgspec

from paritygate.structure.gate import check
from paritygate.structure.rules import AnyRule, StructurePolicy
from paritygate.verdict import Outcome

LINES = 500
PER_PACKAGE = 50
NAMING = 50

METHOD = '''\
    def method_{k}(self, value: int, other: "Thing", limit: int = {k}) -> int:
        """Adds up {k} items; see also method_{k} of the other one."""
        total = value * {k} + len(str(value))
        for item in range(total):  # one by one
            if item % 3 == 0 and value < limit:
                total += other.method_{n}(item, self)
            else:
                total -= self.helper(item)[0]
        self.rows.append({{"total": total, "name": f"row {{value}}"}})
        return total

'''


def python_module(number: int, below: list[str], naming: bool) -> str:
    """The text of one module; `below` are modules that it imports from."""
    lines = [
        f'"""Module {number}, one of many."""',
        "",
        "from __future__ import annotations",
        "",
        "import os",
    ]
    lines += [f"from {name} import Thing as Thing{at}" for at, name in enumerate(below)]
    if naming:
        lines += [
            "from big.core import ends as _over",
            "",
            "",
            "def finished(rows):",
            "    return [_over(row) for row in rows]",
        ]
    lines += ["", "", "class Thing:", '    """Holds rows."""', "", "    def __init__(self):"]
    lines += ["        self.rows: list[dict] = []", ""]
    text = "\n".join(lines) + "\n"
    k = 0
    while text.count("\n") < LINES - 12:
        text += METHOD.format(k=k, n=(k * 3) % 7)
        k += 1
    return text + (
        "    def helper(self, item):\n        return [item, os.path.join('a', str(item))]\n\n\n"
        "def work(value):\n    thing = Thing()\n    return thing.method_0(value, thing)\n"
    )


RUST = """\
/// Adds up {k} items.
pub fn method_{k}(value: usize, other: &mut Vec<usize>) -> usize {{
    let mut total = value * {k} + 1;
    for item in 0..total {{
        if item % 3 == 0 && value < {k} {{
            other.push(item);
        }} else {{
            total = total.saturating_sub(other.len());
        }}
    }}
    total
}}

"""


def rust_file(naming: bool) -> str:
    """The text of one Rust file."""
    per = RUST.count("\n")
    text = "".join(RUST.format(k=k) for k in range(LINES // per))
    calls = "pub fn done(row: &Row) -> bool {\n    if finish_step(row) { return true; }\n    false\n}\n"
    return text + (calls if naming else "")


def write_tree(root: Path, lines: int, language: str) -> int:
    """Write the tree; the number of lines in it."""
    total = 0
    for number in range(lines // LINES):
        folder = root / "src" / "big" / f"p{number // PER_PACKAGE:03}"
        naming = number % NAMING == 7
        if language == "python":
            if not folder.exists():
                folder.mkdir(parents=True)
                (folder / "__init__.py").write_text("")
            earlier = range(max(0, number - 3), number)
            below = [f"big.p{at // PER_PACKAGE:03}.m{at:05}" for at in earlier]
            text = python_module(number, below, naming)
            (folder / f"m{number:05}.py").write_text(text)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            text = rust_file(naming)
            (folder / f"m{number:05}.rs").write_text(text)
        total += text.count("\n")
    if language == "python":
        (root / "src" / "big" / "__init__.py").write_text("")
        (root / "src" / "big" / "core.py").write_text(
            "def ends(row):\n    return row.length >= row.max_tokens\n"
        )
    else:
        (root / "src" / "big" / "finish.rs").write_text(
            "pub fn finish_step(row: &Row) -> bool {\n    row.len() >= row.max_tokens\n}\n"
        )
    return total


def rules(root: Path, language: str) -> StructurePolicy:
    """A rule of each kind over that tree, all of them held."""
    packages = sorted(path.name for path in (root / "src" / "big").iterdir() if path.is_dir())
    if language == "python":
        later = "src/big/p000/m00001.py"
        tables: list[dict] = [
            {"kind": "single-caller", "target": "big.core.ends", "only_from": ["src/big/"],
             "planted": {"file": "tools/x.py", "append": "from big.core import ends\nends(1)"}},
            {"kind": "single-caller", "target": "big.p000.m00007.finished", "only_from": ["tools/y.py"],
             "planted": {"file": later, "append": "from big.p000 import m00007 as _m\n_m.finished([])"}},
            {"kind": "must-call", "functions": ["big.p*.finished"], "target": "big.core.ends",
             "planted": {"file": "src/big/p000/m00007.py", "find": "_over(row) for", "replace": "row for"}},
            {"kind": "only-defined-in", "compares": "max_tokens", "only_in": ["src/big/core.py"],
             "planted": {"file": later, "append": "def over(row):\n    return row.n > row.max_tokens"}},
            {"kind": "only-defined-in", "defines": "ends", "only_in": ["src/big/core.py"],
             "planted": {"file": later, "append": "def ends(row): ..."}},
            {"kind": "imports", "package": "big", "layers": [["core"], *([name] for name in packages)],
             "planted": {"file": later, "append": f"from big.{packages[-1]} import m00001"}},
            {"kind": "imports", "of": "big", "forbid": ["harness"],
             "planted": {"file": later, "append": "import harness.judge"}},
            {"kind": "absent-symbol", "symbol": "legacy_cache",
             "planted": {"file": later, "append": "legacy_cache = 1"}},
            {"kind": "absent-pattern", "pattern": r"\btime\.sleep\b",
             "planted": {"file": later, "append": "time.sleep(1)"}},
        ]  # fmt: skip
        (root / "tools").mkdir(exist_ok=True)
        (root / "tools" / "y.py").write_text("from big.p000.m00007 import finished\n\nfinished([])\n")
    else:
        later = "src/big/p000/m00001.rs"
        files = ["src/**/*.rs"]
        tables = [
            {"kind": "absent-pattern", "pattern": r"\bdetect_loop\s*\(", "files": files,
             "planted": {"file": later, "append": "fn f() { detect_loop(x); }"}},
            {"kind": "only-pattern-in", "pattern": r"\bmax_tokens\b", "only_in": ["src/big/finish.rs"], "files": files,
             "planted": {"file": later, "append": "fn f(max_tokens: usize) {}"}},
            {"kind": "only-structure-in", "language": "rust", "structure": "$A.len() >= $B.max_tokens",
             "only_in": ["src/big/finish.rs"], "files": files,
             "planted": {"file": later, "append": "fn f(row: &Row) -> bool { row.ids.len() >= row.max_tokens }"}},
            {"kind": "absent-structure", "language": "rust", "structure": "$ROW.unwrap()", "files": files,
             "planted": {"file": later, "append": "fn f(row: Option<u8>) { row.unwrap(); }"}},
        ]  # fmt: skip
    for number, table in enumerate(tables):
        table |= {"name": f"{number} {table['kind']}", "why": "A large tree."}
    return StructurePolicy(("src",), (), msgspec.convert(tables, tuple[AnyRule, ...]))


def measure(lines: int, language: str) -> None:
    """Write a tree, judge every rule over it and over its planted copy, print what it took.

    The time of one core tells more than the clock where the machine is shared.
    """
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        total = write_tree(root, lines, language)
        policy = rules(root, language)
        started, working = time.perf_counter(), time.process_time()
        checks = list(check(policy, root, lambda line: None))
        seconds, worked = time.perf_counter() - started, time.process_time() - working
    for made in checks:
        print(f"  {made.seconds:6.2f} s  {made.outcome}  {made.name.partition('/')[2]}: {made.headline[:90]}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    spent = f"{seconds:.1f} s ({worked:.1f} s of one core), {memory:.2f} GB"
    print(f"{language}: {total:,} lines, {len(checks)} rules and their plants: {spent}")
    assert all(made.outcome is Outcome.PASS for made in checks)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Time the structure rules over a large tree.")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--language", choices=("python", "rust"), action="append")
    given = parser.parse_args()
    for language in given.language or ("python", "rust"):
        measure(given.lines, language)
