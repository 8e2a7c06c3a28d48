"""GGUF files of every family: llama.cpp itself says what a file means, and a file says what its directory says.

Each file is written from a tiny checkpoint as llama.cpp's converter would (`gguf_files`). llama.cpp loads it, computes
in float32 throughout, and must say what transformers says of the directory: so it is a file of that family, and not
only one that this engine understands. This engine must then say the same of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import xllamacpp  # noqa: F401  (first: it cannot be loaded behind the BLAS that MLX is given, whose symbols are global)
from distance import ENVELOPE, apart
from family_oracles import Transformers
from gguf import GGMLQuantizationType as Kind
from gguf_files import write_gguf
from gguf_forms import FORMS
from gguf_told import GPT_OSS_CUT, TOLD, Told, told
from tiny_checkpoints import MODELS

from paritygate.arms.llama_cpp_inprocess import LlamaCppArm, LlamaCppOptions
from paritygate.case import Case
from tokenline.checkpoint.gguf import ARCHITECTURES, family_and_config, metadata, read_gguf, tensors
from tokenline.client import Model
from tokenline.errors import CheckpointError
from tokenline.models import FAMILIES
from tokenline.ops import open_ops

TOKENS = [int(token) for token in np.random.default_rng(5).integers(3, 259, 120)]
DECIDED = 1e-3
# What ggml computes in half precision even in float32 files: GELU, by a table.
HALF_PRECISION = {"gemma2": 1e-3, "gemma3": 1e-3}
# Families of which the values in the file are others than in the directory, and rounded once more on the way back.
ROUNDED = {"falcon_h1", "granitemoehybrid", "granitemoehybrid_moe", "mamba2", "nemotron_h", "nemotron_h_moe",
           "qwen3_5", "qwen3_next"}  # fmt: skip


@dataclass(frozen=True)
class Written:
    name: str
    directory: Path
    file: Path


def family_of(name: str) -> str:
    """nemotron_h has two forms: layers of MLPs, and layers of experts."""
    return name.removesuffix("_moe") if name == "nemotron_h_moe" else name


def written_as(name: str, at: Path, **more: Any) -> Written:
    """`told` is what the checkpoint is told beside what its form needs."""
    directory = MODELS / family_of(name) / "checkpoint"
    what = more.pop("told", TOLD.get(name))
    if what is not None:
        directory = told(directory, at / family_of(name) / "checkpoint", what)
    return Written(name, directory, write_gguf(directory, at / f"{name}.gguf", FORMS[name], **more))


@pytest.fixture(scope="session", params=sorted(FORMS))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return written_as(request.param, tmp_path_factory.mktemp(request.param))


def said(path: Path, backend: str = "torch") -> np.ndarray:
    with Model(str(path), backend=backend, dtype="float32", threads=1) as model:
        return model.logits(TOKENS)


def oracle(directory: Path, **changes: Any) -> Transformers:
    """As it stands for the family."""
    if directory.parent.name == "nemotron_h":
        changes |= {"time_step_min": 0.0}
    return Transformers(directory, **changes)


def as_llama_cpp_reads(written: Written) -> Transformers:
    if written.name != "gpt_oss":
        return oracle(written.directory)
    yarn = oracle(written.directory)._model.config.rope_parameters | GPT_OSS_CUT
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


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"split.count": 3}, r"x\.gguf is one of 3 parts: join them first"),
    ("llama", {"llama.block_count": None}, r"x\.gguf lacks the metadata key llama.block_count"),
    ("llama", {"llama.attention.head_count": "four"}, "llama.attention.head_count is 'four', which is not a whole"),
    ("llama", {"llama.rope.scaling.type": "ntk"}, "scales rope by 'ntk'.*supported: none, linear, yarn, longrope"),
    ("llama", {"llama.rope.scaling.type": "longrope"}, "lacks the factors of longrope"),
    ("llama", {"llama.rope.scale_linear": 2.0}, "outdated key"),
    ("llama", {"llama.rope.dimension_count": 8}, "turns a part of a head"),
    ("llama", {"llama.attention.head_count": 0}, "llama.attention.head_count is 0"),
    ("llama", {"llama.attention.head_count_kv": 0}, "llama.attention.head_count_kv is 0"),
    ("llama", {"llama.rope.freq_base": 1.0}, "turns by powers of 1.0"),
    ("minicpm", {"minicpm.logit_scale": 0.0}, "minicpm.logit_scale is 0.0"),
    ("llama", {"llama.nextn_predict_layers": 3}, "no layer that is not for drafting"),
    ("llama", {"llama.attention.head_count": 7, "llama.attention.head_count_kv": 7}, r"fit the shape of blk.0.attn_q"),
    ("lfm2", {"lfm2.attention.head_count_kv": [0, 2]}, "for 2 layers of 4"),
    ("mamba2", {"mamba2.ssm.time_step_rank": 7}, "a state space of 128 in 7 heads"),
    ("deepseek_v3", {"deepseek2.expert_gating_func": 9}, r"expert_gating_func is 9: supported: 1 \(softmax\)"),
    ("deepseek_v3", {"deepseek2.expert_gating_func": 1}, "scoring_func 'softmax' is not supported"),
    ("deepseek_v3", {"deepseek2.attention.key_length_mla": 8}, "nothing is left beside the rotated part"),
    ("granite", {"granite.logit_scale": None}, "lacks the metadata key granite.logit_scale"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "told_"), WRONG, ids=lambda value: str(value)[:40])
def test_malformed_metadata_is_one_line(
    tmp_path: Path, name: str, changes: dict[str, Any], told_: str
) -> None:
    file = write_gguf(MODELS / name / "checkpoint", tmp_path / "x.gguf", FORMS[name], metadata=changes)
    with pytest.raises(CheckpointError, match=told_) as caught:
        said(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 0, 1, "x", [1, 2], -1.5, True], ids=repr)
def test_any_odd_value_of_any_key_is_loaded_or_told(written: Written, value: Any) -> None:
    """Never another error, whatever a key says: what cannot be a model is told in one line."""
    reader = read_gguf(written.file)
    meta, ops = metadata(reader), open_ops("torch", "float32", 1)
    lines = []
    for key in [key for key in meta if key.startswith(f"{meta['general.architecture']}.")]:
        changed = meta | {key: value} if value is not None else {k: v for k, v in meta.items() if k != key}
        try:
            family, config = family_and_config("x.gguf", changed, reader)
            FAMILIES[family](ops, config, tensors("x.gguf", changed, reader, config), None)
        except CheckpointError as error:
            lines.append(str(error))
    assert len(lines) > 3
    assert not [line for line in lines if "\n" in line]


def test_layers_that_draft_are_left_alone(tmp_path: Path) -> None:
    """As in Qwen 3.5's files: a block after the last, counted with the others."""
    said_ = {"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1}
    extra = {"blk.4.nextn.eh_proj.weight": np.zeros((64, 128), np.float32)}
    (tmp_path / "with").mkdir()
    drafting = written_as("qwen3_5", tmp_path / "with", metadata=said_, tensors=extra)
    (tmp_path / "without").mkdir()
    np.testing.assert_array_equal(said(drafting.file), said(written_as("qwen3_5", tmp_path / "without").file))


def test_a_stranger_among_the_tensors_is_named(tmp_path: Path) -> None:
    stranger = {"blk.0.attn_sideways.weight": np.zeros((2, 2), np.float32)}
    with pytest.raises(CheckpointError, match=r"attn_sideways\.weight belongs to no qwen3"):
        said(written_as("qwen3", tmp_path, tensors=stranger).file)


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    whole = written_as("granitemoehybrid_moe", tmp_path)
    data = whole.file.read_bytes()
    # The same length, so that the file stays whole: the up projections are some other tensor now.
    whole.file.write_bytes(data.replace(b"blk.1.ffn_up_exps.weight", b"rope_factors_long.weight", 1))
    with pytest.raises(CheckpointError, match=r"lacks its parts ffn_up_exps\.weight"):
        said(whole.file)
