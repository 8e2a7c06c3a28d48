"""Our engine beside others: one session each, the same prompt, dtype and threads, in balanced order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from paritygate.arms.hugging_face import save_directory
from paritygate.bench.observation import FIGURES, Observation, Workload
from paritygate.bench.pairs import BenchError, Side
from paritygate.bench.session import Session, run_session
from paritygate.bench.settings import BenchPolicy
from paritygate.scratch import scratch

# The peer that runs on the same library, and so the same kernels, as each of our backends.
PEER_OF = {"torch": "transformers", "mlx": "mlx-lm"}


@dataclass(frozen=True)
class Comparison:
    """One of our backends (head) beside its peer (base): ratios below 1 say that ours takes less time."""

    backend: str
    peer: str
    session: Session

    def ratio(self, name: str) -> float:
        """Median of head over median of base: times, so lower is better for us."""
        return self.session.median(name, head=True) / self.session.median(name, head=False)

    @property
    def ours(self) -> Observation:
        """Our last observation."""
        return self.session.pairs[-1][1]

    @property
    def theirs(self) -> Observation:
        """The peer's last observation."""
        return self.session.pairs[-1][0]


def compare_with_peers(
    root: Path,
    workload: Workload,
    checkpoint: Path,
    policy: BenchPolicy,
    backends: tuple[str, ...],
    progress: Callable[[str], None],
) -> Iterator[Comparison]:
    """Each backend against its peer. Raises BenchError, also where dtypes differ from what was asked."""
    if not workload.decode_prompt:
        raise BenchError("peers are measured over token ids: name a golden in [bench] case")
    if workload.options["dtype"] not in ("float32", "bfloat16", "float16"):
        raise BenchError(
            f"peers have no dtype {workload.options['dtype']!r}: use float32, bfloat16 or float16"
        )
    with scratch("peer") as folder:
        directory = ""
        if "mlx" in backends:
            progress("writing the checkpoint as a directory that mlx-lm reads")
            save_directory(checkpoint, folder)
            directory = str(folder)
        for backend in backends:
            peer = PEER_OF[backend]
            settings = {key: workload.options[key] for key in ("dtype", "threads")}
            ours = replace(
                workload, options={**settings, "backend": backend}, model=str(checkpoint), expected=()
            )
            theirs = replace(
                workload,
                kind=peer,
                options={**settings, "directory": directory if backend == "mlx" else ""},
                model=str(checkpoint),
                expected=(),
            )
            progress(
                f"tokenline on {backend} beside {peer}, {settings['dtype']}, {settings['threads']} thread(s)"
            )
            session = run_session(
                Side(peer, root, theirs), Side(f"tokenline-{backend}", root, ours), policy, progress
            )
            found = session.pairs[-1][1].manifest.get("dtype")
            if found != settings["dtype"]:
                raise BenchError(f"tokenline ran in {found}, {settings['dtype']} was to be compared")
            yield Comparison(backend, peer, session)


def lines(comparison: Comparison) -> Iterator[tuple[str, float, float, float]]:
    """(figure, ours in ns, theirs in ns, ours / theirs) for each figure."""
    for name in FIGURES:
        ours = comparison.session.median(name, head=True)
        theirs = comparison.session.median(name, head=False)
        yield name, ours, theirs, ours / theirs
