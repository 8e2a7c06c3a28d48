"""Engines that are not ours: what they say for a case is what a golden is recorded from.

`python -m paritygate.golden.oracles --oracle transformers --checkpoint FILE --threads 1` reads cases (JSON Lines)
on stdin and writes one OracleAnswer a line on stdout. One process per oracle and thread count, because thread
pools are sized when a library is loaded.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from paritygate.arms.hugging_face import as_directory, load_tokenizer, versions_of
from paritygate.arms.written_answer import cut_at_stop, prompt_ids
from paritygate.case import Case
from paritygate.golden.decoders import Decoder, MlxLmDecoder, TransformersDecoder
from paritygate.logits import log_softmax
from paritygate.own_stdout import own_stdout
from paritygate.stream import Position, TopToken

TOP = 5
# Of the logits' range; float32 in another order moves logits by a thousandth of this.
LOST = 1e-3


class OracleError(Exception):
    """An oracle that is not installed, or that failed; the message carries what it printed."""


class OracleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One greedy run. `positions` has one entry a token, and one more for the end-of-sequence that ended it."""

    case: str
    oracle: str
    threads: int
    versions: dict[str, str]
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    finish_cause: str
    positions: tuple[Position, ...]
    tokenizer_hash: str
    template_hash: str


class Answerer:
    """Greedy decoding with one decoder and transformers' tokenizer and chat template."""

    def __init__(
        self, decoder: Decoder, tokenizer: Any, oracle: str, threads: int, versions: dict[str, str]
    ) -> None:
        self.decoder = decoder
        self.tokenizer = tokenizer
        self.oracle = oracle
        self.threads = threads
        self.versions = versions

    def position(self, logits: np.ndarray) -> Position:
        """The greedy token of a row with its top alternatives and the gap between the first two, in logits."""
        logprobs = log_softmax(logits)
        top = np.argsort(-logits, kind="stable")[:TOP]
        entries = tuple(
            TopToken(int(i), self.tokenizer.decode([int(i)]), round(float(logprobs[i]), 6)) for i in top
        )
        return Position(
            token_id=entries[0].token_id,
            token=entries[0].token,
            logprob=entries[0].logprob,
            top=entries,
            margin=round(float(logits[top[0]] - logits[top[1]]), 6),
        )

    def answer(self, case: Case) -> OracleAnswer:
        """One greedy run of the case."""
        prompt = prompt_ids(self.tokenizer, case)
        eos = self.tokenizer.eos_token_id
        token_ids: list[int] = []
        positions: list[Position] = []
        reason, cause, text = "length", "Length", ""
        self.decoder.begin()
        feed, fed = prompt, list[int]()
        logits = np.zeros(0, np.float32)
        while len(token_ids) < case.max_tokens:
            logits = self.decoder.next_logits(feed)
            fed = token_ids.copy()
            position = self.position(logits)
            positions.append(position)
            token_id = position.token_id
            assert token_id is not None  # `position` takes it from the row
            if token_id == eos:
                reason, cause = "stop", "Eos"
                break
            token_ids.append(token_id)
            feed = [token_id]
            text = self.tokenizer.decode(
                token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            cut = cut_at_stop(text, case.stop)
            if cut is not None:
                reason, cause, text = "stop", "StopSequence", cut
                break
        self._refuse_lost_state(case, [*prompt, *fed], logits)
        template = self.tokenizer.chat_template or ""
        return OracleAnswer(
            case=case.name,
            oracle=self.oracle,
            threads=self.threads,
            versions=self.versions,
            prompt_token_ids=tuple(prompt),
            token_ids=tuple(token_ids),
            text=text,
            finish_reason=reason,
            finish_cause=cause,
            positions=tuple(positions),
            tokenizer_hash=hashlib.sha256(self.tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
            template_hash=hashlib.sha256(template.encode()).hexdigest(),
        )

    def _refuse_lost_state(self, case: Case, token_ids: list[int], logits: np.ndarray) -> None:
        """The last position once more, in one forward: an oracle whose state is lost between steps answers other texts
        than it was asked, always the same, with margins that look decided."""
        if not logits.size:
            return
        apart = float(np.abs(self.decoder.whole_logits(token_ids) - logits).max() / np.ptp(logits))
        if apart > LOST:
            raise OracleError(
                f"{self.oracle} says other logits step by step than in one forward, {apart:.2g} of their range apart "
                f"at the end of {case.name}: what it remembers between steps is not this text"
            )


LIBRARIES = {
    "transformers": ("transformers", "torch", "tokenizers", "gguf"),
    "mlx-lm": ("mlx-lm", "mlx", "torch", "transformers", "tokenizers"),
}


def open_oracle(oracle: str, checkpoint: Path, directory: Path, threads: int) -> Answerer:
    """An oracle by name, in this process."""
    tokenizer = load_tokenizer(checkpoint)
    decoder: Decoder = (
        TransformersDecoder(checkpoint, threads)
        if oracle == "transformers"
        else MlxLmDecoder(directory, threads)
    )
    versions = versions_of(LIBRARIES[oracle])
    return Answerer(decoder, tokenizer, oracle, threads, versions)


def run_oracle(
    oracle: str, cases: Iterable[Case], *, checkpoint: Path, directory: Path, threads: int
) -> Iterator[OracleAnswer]:
    """Answers of one oracle in a process of its own, as they come. Raises OracleError."""
    if oracle == "mlx-lm":
        directory = as_directory(checkpoint, directory)
    command = [
        sys.executable,
        "-m",
        "paritygate.golden.oracles",
        "--oracle",
        oracle,
        "--checkpoint",
        str(checkpoint),
    ]
    command += ["--directory", str(directory), "--threads", str(threads)]
    count = str(threads)
    threading = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), count)
    with tempfile.TemporaryFile() as questions, tempfile.TemporaryFile() as printed:
        questions.write(b"".join(msgspec.json.encode(case) + b"\n" for case in cases))
        questions.seek(0)
        process = subprocess.Popen(
            command, stdin=questions, stdout=subprocess.PIPE, stderr=printed, env=os.environ | threading
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield msgspec.json.decode(line, type=OracleAnswer)
            if process.wait() != 0:
                printed.seek(0)
                tail = printed.read().decode(errors="replace")[-2000:]
                raise OracleError(f"oracle {oracle} ended with {process.returncode}:\n{tail}")
        finally:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--oracle", choices=sorted(LIBRARIES), required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    answers = own_stdout()
    cases = [msgspec.json.decode(line, type=Case) for line in sys.stdin.buffer]
    oracle = open_oracle(arguments.oracle, arguments.checkpoint, arguments.directory, arguments.threads)
    for case in cases:
        answers.write(msgspec.json.encode(oracle.answer(case)) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
