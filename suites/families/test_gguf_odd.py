"""GGUF files that are not what they should be: every fault is one line that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import write_gguf
from gguf_forms import FORMS
from gguf_written import Written, said, written_as
from tiny_checkpoints import MODELS

from tokenline.checkpoint.gguf import family_and_config, metadata, read_gguf, tensors
from tokenline.errors import CheckpointError
from tokenline.models import FAMILIES
from tokenline.ops import open_ops

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
