"""`paritygate bench`: the gate alone, this checkout against a commit, against itself, against other engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace
from rich.table import Table

from paritygate import policy as policies
from paritygate.bench import gate
from paritygate.bench.calibrate import calibrate
from paritygate.bench.compare import PEER_OF, compare_with_peers, lines
from paritygate.bench.observation import UNITS
from paritygate.bench.pairs import BenchError
from paritygate.command_line import Root, policy_at, refused
from paritygate.console import Console
from paritygate.verdict import Check, Exit, Outcome, exit_code

app = typer.Typer(
    help="Is this checkout as fast as another commit, itself, or another engine?", no_args_is_help=True
)

Rounds = Annotated[int, typer.Option(help="Rounds of four processes, at most.", min=1)]
STYLES = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.INCONCLUSIVE: "yellow"}
errors = Console(stderr=True)


def _progress(line: str) -> None:
    errors.print(line, style="dim", markup=False, highlight=False)


@contextmanager
def _could_not_run() -> Iterator[None]:
    try:
        yield
    except BenchError as error:
        raise refused(f"Nothing was measured: {error}", Exit.COULD_NOT_RUN) from None


def _judge(policy: policies.Policy, root: Path, base: str) -> None:
    console = Console()
    checks: list[Check] = []
    for check in gate.run(policy, root, _progress, base):
        checks.append(check)
        console.print(f"[{STYLES.get(check.outcome, 'red')}]{check.verdict:12}[/] [bold]{check.name}[/]")
        console.print(f"             {check.headline}", markup=False, highlight=False)
    raise typer.Exit(exit_code(checks))


@app.command()
def run(root: Root = Path()) -> None:
    """Run the gate as `paritygate verify` does."""
    _judge(policy_at(root), root, "")


@app.command()
def ab(
    base: Annotated[str, typer.Option(help="The commit to compare with; the gate's choice without it.")] = "",
    rounds: Rounds = 8,
    root: Root = Path(),
) -> None:
    """Compare this checkout with a base commit, with more rounds than the gate takes."""
    policy = policy_at(root)
    bench = policy.bench
    longer = replace(bench, max_rounds=max(rounds, bench.min_rounds), session_seconds=float("inf"))
    _judge(replace(policy, bench=longer), root, base)


@app.command(name="calibrate")
def calibrate_command(rounds: Rounds = 8, root: Root = Path()) -> None:
    """Run this checkout against itself and say which margin this machine asks for."""
    policy = policy_at(root)
    table = Table("figure", "pairs", "median ratio", "spread", "margin asked for", box=None)
    with _could_not_run():
        for noise in calibrate(root, gate.workload_of(policy, root), policy.bench, rounds, _progress):
            table.add_row(noise.figure, str(noise.pairs), f"{noise.median:.4f}", f"{noise.spread:.2%}",
                          f"{noise.margin:.3f}")  # fmt: skip
    Console().print(table)


@app.command()
def compare(
    checkpoint: Annotated[
        Path, typer.Option(help="The .gguf file that all engines read.", dir_okay=False, exists=True)
    ],
    backend: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(PEER_OF)}; both without it.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16, for all.")] = "float32",
    threads: Annotated[int, typer.Option(help="Threads, for all.", min=1)] = 1,
    rounds: Rounds = 3,
    root: Root = Path(),
) -> None:
    """Measure our engine beside transformers (torch) and mlx-lm (MLX): same dtype, same threads, same BLAS."""
    backends = tuple(backend or PEER_OF)
    for name in backends:
        if name not in PEER_OF:
            raise refused(f"there is no backend {name!r}: use {' or '.join(PEER_OF)}")
    policy = policy_at(root)
    bench = replace(policy.bench, dtype=dtype, threads=threads, min_rounds=rounds, max_rounds=rounds)
    table = Table("figure", "ours", "theirs", "ours / theirs", "unit", box=None)
    with _could_not_run():
        workload = gate.workload_of(replace(policy, bench=bench), root)
        for found in compare_with_peers(root, workload, checkpoint, bench, backends, _progress):
            table.add_section()
            for name, ours, theirs, ratio in lines(found):
                label = f"{name}: tokenline-{found.backend}, {found.peer}"
                style = "green" if ratio <= 1 else "yellow"
                table.add_row(
                    label, f"{ours:,.0f}", f"{theirs:,.0f}", f"[{style}]{ratio:.3f}[/]", UNITS[name]
                )
            seen = found.ours
            limit = f"ns: {seen.weight_bytes / 1e6:,.0f} MB at {seen.read_bytes_per_second / 1e9:.1f} GB/s"
            table.add_row("  memory floor of a token", f"{seen.memory_floor_ns:,.0f}", "", "", limit)
    Console().print(table)
