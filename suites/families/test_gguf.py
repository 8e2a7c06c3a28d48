"""GGUF files of every family: llama.cpp itself says what a file means, and a file says what its directory says.

Each file is written from a tiny checkpoint as llama.cpp's converter would (`gguf_files`). llama.cpp loads it, computes
in float32 throughout, and must say what transformers says of the directory: so it is a file of that family, and not
only one that this engine understands. This engine must then say the same of both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import xllamacpp  # noqa: F401  (first: it cannot be loaded behind the BLAS that MLX is given, whose symbols are global)
from distance import ENVELOPE, apart
from family_oracles import Transformers
from gguf import GGMLQuantizationType as Kind
from gguf_forms import FORMS
from gguf_told import GPT_OSS_CUT, TOLD, Told
from gguf_written import TOKENS, Written, family_of, said, written_as
from tiny_checkpoints import MODELS

from paritygate.arms.llama_cpp_inprocess import LlamaCppArm, LlamaCppOptions
from paritygate.case import Case
from tokenline.checkpoint.gguf import ARCHITECTURES

DECIDED = 1e-3
# What ggml computes in half precision even in float32 files: GELU, by a table.
HALF_PRECISION = {"gemma2": 1e-3, "gemma3": 1e-3}
# Families of which the values in the file are others than in the directory, and rounded once more on the way back.
ROUNDED = {"falcon_h1", "granitemoehybrid", "granitemoehybrid_moe", "mamba2", "nemotron_h", "nemotron_h_moe",
           "qwen3_5", "qwen3_next"}  # fmt: skip


def oracle(directory: Path, **changes: Any) -> Transformers:
    """As it stands for the family."""
    if directory.parent.name == "nemotron_h":
        changes |= {"time_step_min": 0.0}
    return Transformers(directory, **changes)


def as_llama_cpp_reads(written: Written) -> Transformers:
    if written.name != "gpt_oss":
        return oracle(written.directory)
    yarn = oracle(written.directory).model.config.rope_parameters | GPT_OSS_CUT
    return oracle(written.directory, rope_parameters=yarn, rope_scaling=yarn)


class LlamaCpp:
    """A file, in float32 throughout: cache, attention, weights."""

    def __init__(self, file: Path) -> None:
        options = LlamaCppOptions(flash_attention="off", cache_type="f32", context_length=1024)
        self.arm = LlamaCppArm("llama.cpp", options, str(file))

    def __enter__(self) -> LlamaCppArm:
        self.arm.open()
        return self.arm

    def __exit__(self, *_: object) -> None:
        self.arm.close()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_every_architecture_is_written() -> None:
    assert {gguf.MODEL_ARCH_NAMES[form.architecture] for form in FORMS.values()} == set(ARCHITECTURES)


def numbers_of(file: Path, *kinds: Kind) -> dict[str, np.ndarray]:
    """Tensors of those types of blocks, as floats."""
    return {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(
            tuple(int(size) for size in reversed(tensor.shape))
        )
        for tensor in gguf.GGUFReader(file).tensors
        if tensor.tensor_type in kinds
    }


def test_llama_cpp_reads_the_file_as_its_family(written: Written, tmp_path: Path) -> None:
    """The log probabilities of the last positions of a text that no model has seen, and a greedy answer.

    gpt-oss's experts are given in floats: what blocks are multiplied with, llama.cpp rounds to eight bits.
    """
    theirs = as_llama_cpp_reads(written)
    prompt = TOKENS[:70]
    file = written.file
    if (numbers := numbers_of(file, Kind.MXFP4)) != {}:
        file = written_as(written.name, tmp_path, tensors=numbers).file
    with LlamaCpp(file) as arm:
        rows = arm.logits(tuple(prompt), 60)
        answer = list(
            arm.generate(Case(name="greedy", prompt_token_ids=tuple(prompt), max_tokens=12)).token_ids
        )
    distance = apart(rows, log_softmax(theirs.logits(prompt))[60:])
    assert distance < HALF_PRECISION.get(written.name, ENVELOPE)
    follows = theirs.logits([*prompt, *answer])[len(prompt) - 1 : -1]
    best = np.sort(follows, axis=-1)
    decided = best[:, -1] - best[:, -2] > DECIDED * np.ptp(follows)
    assert answer
    assert (follows.argmax(-1) == np.asarray(answer))[decided].all()


def test_the_file_says_what_its_directory_says(written: Written, backend: str) -> None:
    of_file, of_directory = said(written.file, backend), said(written.directory, backend)
    assert np.ptp(of_directory) > 1
    if written.name in ROUNDED:
        assert apart(of_file, of_directory) < 1e-5
    else:
        np.testing.assert_array_equal(of_file, of_directory)


def test_what_is_told_is_needed(written: Written) -> None:
    """Where a tiny checkpoint is told otherwise before it is written, it says something else as it is."""
    if TOLD.get(written.name, Told("")).changes and written.name not in {"qwen3_5", "qwen3_next"}:
        as_it_is = said(MODELS / family_of(written.name) / "checkpoint")
        assert apart(said(written.file), as_it_is) > ENVELOPE


def llama3_factors(low: float, high: float, factor: float, trained: int) -> np.ndarray:
    """By how much each wavelength of heads of 16 over a base of 10000 is stretched (Llama 3.1)."""
    made = []
    for frequency in 1.0 / 10000.0 ** (np.arange(0, 16, 2) / 16):
        turns = trained * frequency / (2 * np.pi)
        blend = min(max((turns - low) / (high - low), 0), 1)
        made.append(1 / ((1 - blend) / factor + blend))
    return np.asarray(made, np.float32)


YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0}
YARN_SAID = {
    "llama.rope.scaling.type": "yarn",
    "llama.rope.scaling.factor": 4.0,
    "llama.rope.scaling.original_context_length": 64,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
ROPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": (
        {"rope_type": "linear", "factor": 2.0},
        {"metadata": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}},
    ),
    "yarn": ({"rope_type": "yarn", **YARN}, {"metadata": YARN_SAID}),
    "yarn-attention": (
        {"rope_type": "yarn", **YARN, "attention_factor": 1.5 * (0.1 * np.log(4) + 1)},
        {"metadata": YARN_SAID | {"llama.rope.scaling.attn_factor": 1.5}},
    ),
    "llama3": (
        {"rope_type": "llama3", **LLAMA3},
        {"tensors": {"rope_freqs.weight": llama3_factors(1.0, 4.0, 8.0, 64)}},
    ),
}


@pytest.fixture(scope="module", params=sorted(ROPES))
def turned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A llama whose rope is scaled."""
    scaling, more = ROPES[request.param]
    settings = {key: scaling | {"rope_theta": 10000.0} for key in ("rope_scaling", "rope_parameters")}
    return written_as("llama", tmp_path_factory.mktemp(request.param), told=Told("", settings), **more)


def test_scaled_ropes_are_llama_cpps_and_transformers(turned: Written, backend: str) -> None:
    theirs = oracle(turned.directory).logits(TOKENS)
    assert apart(said(turned.file, backend), theirs) < ENVELOPE
    assert apart(theirs, oracle(MODELS / "llama" / "checkpoint").logits(TOKENS)) > 3 * ENVELOPE
    with LlamaCpp(turned.file) as arm:
        rows = arm.logits(tuple(TOKENS[:70]), 64)
    assert apart(rows, log_softmax(theirs[64:70])) < ENVELOPE


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_1, Kind.Q5_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "name", ["mixtral", "gpt_oss", "deepseek_v3", "granitemoehybrid_moe", "nemotron_h_moe", "qwen3_next"]
)
def test_blocks_of_any_layout_say_what_their_numbers_say(
    tmp_path: Path, backend: str, name: str, kind: Kind
) -> None:
    """Matrices and stacks of them, whose rows are whole blocks: the same file in floats says the same."""

    def stored(tensor: str, value: np.ndarray) -> Kind:
        blocks = value.ndim > 1 and value.shape[-1] % 32 == 0 and "norm" not in tensor and "inp" not in tensor
        return kind if blocks else Kind.F32

    (tmp_path / "few").mkdir()
    few = written_as(name, tmp_path / "few", stored=stored)
    floats = numbers_of(few.file, kind)
    assert any(value.ndim == 3 for value in floats.values()) or name == "gpt_oss"
    (tmp_path / "many").mkdir()
    many = written_as(name, tmp_path / "many", tensors=floats)
    assert apart(said(few.file, backend), said(many.file, backend)) < 1e-5
