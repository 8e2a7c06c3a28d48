"""Engines that are not ours: what they say for a case is what a golden is recorded from.

`python -m paritygate.golden.oracles --oracle transformers --checkpoint FILE --threads 1` reads cases (JSON Lines)
on stdin and writes one OracleAnswer a line on stdout. One process per oracle and thread count, because thread
pools are sized when a library is loaded.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from paritygate.case import Case
from paritygate.stream import Position, TopToken

TOP = 5


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


class Decoder(Protocol):
    """A model that answers one token at a time: `next_logits(ids)` feeds ids and returns the last row, float32."""

    def begin(self) -> None: ...

    def next_logits(self, token_ids: list[int]) -> np.ndarray: ...


class TransformersDecoder:
    """transformers in float32, reading the GGUF itself."""

    def __init__(self, checkpoint: Path, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self._torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(
            str(checkpoint.parent), gguf_file=checkpoint.name, dtype=torch.float32
        ).eval()
        self._past: Any = None

    def begin(self) -> None:
        self._past = None

    def next_logits(self, token_ids: list[int]) -> np.ndarray:
        with self._torch.inference_mode():
            out = self.model(
                self._torch.tensor([token_ids]), past_key_values=self._past, use_cache=True, logits_to_keep=1
            )
        self._past = out.past_key_values
        return out.logits[0, -1].numpy()


class MlxLmDecoder:
    """mlx-lm in float32 over the directory that transformers saved from the GGUF."""

    def __init__(self, directory: Path, threads: int) -> None:
        # MLX's Linux wheel links the reference BLAS; one loaded before it with global symbols is used instead.
        # The tokenizer's transformers may have imported torch already, so its library is opened again.
        import torch

        library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
        if library.is_file():
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        torch.set_num_threads(threads)
        import mlx.core as mx
        from mlx_lm.models.cache import make_prompt_cache
        from mlx_lm.utils import load_model

        self._mx = mx
        self._make_cache = make_prompt_cache
        self.model, _ = load_model(directory)
        self._cache: Any = None

    def begin(self) -> None:
        self._cache = self._make_cache(self.model)

    def next_logits(self, token_ids: list[int]) -> np.ndarray:
        logits = self.model(self._mx.array([token_ids]), cache=self._cache)
        return np.array(logits[0, -1].astype(self._mx.float32))


def save_directory(checkpoint: Path, directory: Path) -> None:
    """Write the checkpoint, as transformers reads the GGUF, as a float32 Hugging Face directory."""
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

    model = TransformersDecoder(checkpoint, threads=1).model
    directory.mkdir(parents=True, exist_ok=True)
    # A model that came from a GGUF refuses save_pretrained, though its weights are plain float32 by now.
    config = model.config.to_dict() | {"architectures": [type(model).__name__], "dtype": "float32"}
    config.pop("quantization_config", None)
    # transformers 5 writes the base of the rotary embedding inside rope_parameters; mlx-lm reads rope_theta alone.
    config["rope_theta"] = model.config.rope_parameters["rope_theta"]
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    weights = {name: value.contiguous() for name, value in model.state_dict().items() if name not in tied}
    AutoTokenizer.from_pretrained(str(checkpoint.parent), gguf_file=checkpoint.name).save_pretrained(
        directory
    )
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def cut_at_stop(text: str, stops: tuple[str, ...]) -> str | None:
    """The text before the first stop string in it; None where no stop string occurs."""
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(found)] if found else None


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Natural log-probabilities of one row, in float64."""
    row = logits.astype(np.float64)
    row -= row.max()
    return row - np.log(np.exp(row).sum())


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

    def prompt(self, case: Case) -> list[int]:
        """The prompt's token ids, through the chat template where the case is a chat."""
        if case.messages is None:
            return list(self.tokenizer.encode(case.prompt))
        text = self.tokenizer.apply_chat_template(
            [{"role": m.role, "content": m.content} for m in case.messages],
            tokenize=False,
            add_generation_prompt=True,
        )
        return list(self.tokenizer.encode(text))

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
        prompt = self.prompt(case)
        eos = self.tokenizer.eos_token_id
        token_ids: list[int] = []
        positions: list[Position] = []
        reason, cause, text = "length", "Length", ""
        self.decoder.begin()
        feed = prompt
        while len(token_ids) < case.max_tokens:
            position = self.position(self.decoder.next_logits(feed))
            positions.append(position)
            if position.token_id == eos:
                reason, cause = "stop", "Eos"
                break
            token_ids.append(position.token_id)
            feed = [position.token_id]
            text = self.tokenizer.decode(
                token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            cut = cut_at_stop(text, case.stop)
            if cut is not None:
                reason, cause, text = "stop", "StopSequence", cut
                break
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


LIBRARIES = {
    "transformers": ("transformers", "torch", "tokenizers", "gguf"),
    "mlx-lm": ("mlx-lm", "mlx", "torch", "transformers", "tokenizers"),
}


def open_oracle(oracle: str, checkpoint: Path, directory: Path, threads: int) -> Answerer:
    """An oracle by name, in this process."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(checkpoint.parent), gguf_file=checkpoint.name)
    decoder: Decoder = (
        TransformersDecoder(checkpoint, threads)
        if oracle == "transformers"
        else MlxLmDecoder(directory, threads)
    )
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES[oracle]}
    return Answerer(decoder, tokenizer, oracle, threads, versions)


def run_oracle(
    oracle: str, cases: Iterable[Case], *, checkpoint: Path, directory: Path, threads: int
) -> Iterator[OracleAnswer]:
    """Answers of one oracle in a process of its own, as they come. Raises OracleError."""
    if oracle == "mlx-lm" and not (directory / "model.safetensors").is_file():
        save_directory(checkpoint, directory)
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
    # Libraries print; answers keep the real stdout to themselves.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    cases = [msgspec.json.decode(line, type=Case) for line in sys.stdin.buffer]
    oracle = open_oracle(arguments.oracle, arguments.checkpoint, arguments.directory, arguments.threads)
    for case in cases:
        answers.write(msgspec.json.encode(oracle.answer(case)) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
