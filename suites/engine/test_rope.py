"""Rotary positions: every kind of scaling against transformers, and neighbours as pairs against halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tokenline.errors import CheckpointError
from tokenline.models.rope import FIRST_POSITIONS, RopeTable
from tokenline.models.rope_scaling import KINDS, Rotation, rotation_of
from tokenline.ops import Ops

SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 128},
    {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
    },
    {
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    },
    {
        "rope_type": "longrope",
        "short_factor": [1.0 + i / 10 for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)],
        "original_max_position_embeddings": 128,
    },
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda each: f"{each['rope_type']}-{len(each)}")
@pytest.mark.parametrize("context", [100, 1024])
def test_frequencies_and_magnitude_are_transformers(scaling: dict[str, Any], context: int) -> None:
    trained = scaling.get("original_max_position_embeddings", 128)
    configured = 1024 if "original_max_position_embeddings" in scaling else trained
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        max_position_embeddings=configured,
        rope_parameters={"rope_theta": 5e4, **scaling},
    )
    if scaling["rope_type"] == "default":
        theirs = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config).inv_freq, 1.0
    else:
        theirs = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu", seq_len=context)
    for written in (
        {"rope_theta": 5e4, "rope_scaling": scaling},
        {"rope_parameters": {"rope_theta": 5e4, **scaling}},
    ):
        ours = rotation_of({"max_position_embeddings": configured, **written}, 16, context)
        np.testing.assert_allclose(ours.frequencies, theirs[0].numpy(), rtol=2e-6)
        assert ours.magnitude == pytest.approx(theirs[1])


def test_every_kind_is_compared() -> None:
    assert {each["rope_type"] for each in SCALINGS} | {"su"} == set(KINDS)


def test_an_unknown_kind_and_a_missing_key_are_named() -> None:
    with pytest.raises(CheckpointError, match="'spiral' is not supported"):
        rotation_of({"rope_scaling": {"type": "spiral"}}, 16, 64)
    with pytest.raises(CheckpointError, match="'linear' lacks 'factor'"):
        rotation_of({"rope_scaling": {"type": "linear"}}, 16, 64)
    scaling = {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0], "factor": 1.0}
    with pytest.raises(CheckpointError, match="1 factors for 8 pairs"):
        rotation_of({"rope_scaling": scaling, "max_position_embeddings": 64}, 16, 64)


def test_a_table_that_grew_says_what_a_whole_one_says(ops: Ops) -> None:
    rotation = Rotation(np.asarray([1.0, 0.25], np.float32), 1.5)
    table = RopeTable(ops, rotation, 3 * FIRST_POSITIONS)
    for start, tokens in ((0, 5), (FIRST_POSITIONS - 2, 7), (3 * FIRST_POSITIONS - 1, 1)):
        cos, sin = ops.read(list(table.at(start, tokens)))
        angles = np.arange(start, start + tokens, dtype=np.float32)[:, None] * np.tile(
            rotation.frequencies, 2
        )
        np.testing.assert_allclose(cos[0, 0], 1.5 * np.cos(angles), atol=1e-6)
        np.testing.assert_allclose(sin[0, 0], 1.5 * np.sin(angles), atol=1e-6)
        rows = ops.read(list(table.at(np.asarray([[start]]), 1)))[0]
        assert np.array_equal(rows[0, 0, 0], cos[0, 0, 0])


def test_neighbours_as_pairs_score_as_their_complex_rotation(ops: Ops) -> None:
    """Two heads of six, of which four entries are rotated as two complex numbers; scores are the same whatever the
    order of the rows."""
    rotation = Rotation(np.asarray([0.9, 0.2], np.float32))
    table = RopeTable(ops, rotation, 64, interleaved=True)
    rng = np.random.default_rng(4)
    q, k = rng.normal(size=(2, 12)).astype(np.float32)
    order = table.rows(2)
    assert order is not None

    def turned(vector: np.ndarray, position: int) -> np.ndarray:
        heads = ops.array(order(vector[:, None]).reshape(1, 2, 1, 6))
        return ops.read([table.turn(heads, *table.at(position, 1))])[0][0, :, 0]

    def spun(vector: np.ndarray, position: int) -> np.ndarray:
        heads = vector.reshape(2, 6).astype(np.float64)
        pairs = heads[:, 0:4:2] + 1j * heads[:, 1:4:2]
        pairs = pairs * np.exp(1j * position * rotation.frequencies.astype(np.float64))
        return np.concatenate([pairs.real, pairs.imag, heads[:, 4:]], axis=1)

    for here, there in ((0, 0), (7, 3), (31, 30)):
        ours = (turned(q, here) * turned(k, there)).sum(-1)
        np.testing.assert_allclose(ours, (spun(q, here) * spun(k, there)).sum(-1), atol=1e-5)
