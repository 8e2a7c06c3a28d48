"""Recording: every oracle answers every case, and what is admitted becomes a pending golden."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paritygate.arms.hugging_face import weight_files, weights_hash
from paritygate.case import Case
from paritygate.digest import file_digest
from paritygate.golden.admission import NotAdmitted, admit, oracles_admitted
from paritygate.golden.layers import REFERENCE, matches
from paritygate.golden.oracles import OracleAnswer, run_oracle
from paritygate.golden.store import GoldenError, Store, refuse_under_ci
from paritygate.policy import Policy
from paritygate.scratch import scratch


@dataclass(frozen=True)
class Recorded:
    """What came of one case: a pending file, or why there is none."""

    case: str
    path: Path | None
    tokens: int
    min_margin: float
    max_difference: float
    why_not: str = ""


def sha256_of(checkpoint: Path) -> str:
    """Hex digest of the weights: of the one file that holds them, or over the digests of several.

    Raises GoldenError where a directory holds none.
    """
    files = weight_files(checkpoint)
    if not files:
        raise GoldenError(f"{checkpoint}: holds no weights (*.safetensors, *.bin)")
    return weights_hash(checkpoint) if len(files) > 1 else file_digest(files[0])


def record(
    policy: Policy,
    store: Store,
    cases: Sequence[Case],
    checkpoint: Path,
    progress: Callable[[str], None],
    *,
    layer: str = REFERENCE,
    oracles: tuple[str, ...] = (),
) -> list[Recorded]:
    """Ask the oracles (the policy's, or some of them) and write pending goldens; other cases' files stay as they are.

    Raises GoldenError, and OracleError where an oracle cannot run: then nothing was written.
    """
    refuse_under_ci("record a golden")
    if not cases:
        raise GoldenError("no case to record: nothing was done")
    if not matches(layer, store.machine):
        raise GoldenError(
            f"{layer} does not hold for this machine ({store.machine}): record it where it does"
        )
    oracles = oracles or policy.goldens.oracles
    try:
        repeats = oracles_admitted(policy.goldens, oracles)
    except NotAdmitted as why:
        raise GoldenError(str(why)) from why
    weights = sha256_of(checkpoint)
    if weights != policy.checkpoint.sha256:
        raise GoldenError(
            f"{checkpoint}: its sha256 is {weights}, the policy names {policy.checkpoint.sha256}"
        )
    answers: dict[str, list[OracleAnswer]] = {case.name: [] for case in cases}
    with scratch("oracle") as directory:
        for oracle in oracles:
            for threads in [count for count in policy.goldens.threads for _ in range(repeats)]:
                run = run_oracle(oracle, cases, checkpoint=checkpoint, directory=directory, threads=threads)
                for number, answer in enumerate(run, 1):
                    answers[answer.case].append(answer)
                    progress(f"{oracle}, {threads} thread(s): {number}/{len(cases)} {answer.case}")
    results = []
    for case in cases:
        try:
            golden = admit(
                case, answers[case.name], policy.goldens, weights_sha256=weights, machine=store.machine,
                oracles=oracles,
            )  # fmt: skip
        except NotAdmitted as why:
            results.append(Recorded(case.name, None, 0, 0.0, 0.0, str(why)))
            continue
        largest = max(run.max_difference for run in golden.provenance.runs)
        path = store.write_pending(golden, layer)
        results.append(Recorded(case.name, path, len(golden.token_ids), golden.min_margin, largest))
    return results
