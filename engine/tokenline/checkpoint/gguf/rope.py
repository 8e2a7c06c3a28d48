"""How a file says rotary positions, as a configuration does: the base, a scaling, factors that are tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tokenline.checkpoint.gguf.blocks import read_tensor
from tokenline.checkpoint.gguf.said import MEND, Said
from tokenline.errors import CheckpointError
from tokenline.ops.arrays import dense

# Tensors that hold factors and belong to no layer.
FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def head_size(said: Said) -> int:
    """Entries of a head."""
    heads, width = said.whole("attention.head_count"), said.whole("embedding_length")
    return said.whole("attention.key_length", max(width // heads, 1))


def _theta(said: Said) -> float:
    theta = said.number("rope.freq_base", 10000.0)
    if theta <= 1:
        raise CheckpointError(f"{said.file} turns by powers of {theta}", MEND)
    return theta


def rotated_part(said: Said) -> float:
    """How much of a head is turned."""
    return said.whole("rope.dimension_count", head_size(said)) / head_size(said)


def scaling(said: Said) -> Mapping[str, Any]:
    """`rope_scaling` of a configuration; CheckpointError for a kind that is not supported."""
    if "rope.scale_linear" in said:
        raise CheckpointError(
            f"{said.file} scales rope by an outdated key ({said.architecture}.rope.scale_linear)",
            "convert the checkpoint again",
        )
    kind = said.of("rope.scaling.type", (str,), "none", "a name")
    kinds = {"none": _unscaled, "linear": _linear, "yarn": _yarn, "longrope": _longrope}
    if kind not in kinds:
        raise CheckpointError(
            f"{said.file} scales rope by {kind!r}, which is not supported", f"supported: {', '.join(kinds)}"
        )
    return kinds[kind](said)


def _unscaled(said: Said) -> dict[str, Any]:
    """Llama 3.1's stretching comes as one factor for each pair, the same whatever the length."""
    if FACTORS[0] in said.tensors:
        return _factors(said, FACTORS[0], FACTORS[0], 1.0)
    return {"rope_type": "default"}


def _linear(said: Said) -> dict[str, Any]:
    return {"rope_type": "linear", "factor": said.number("rope.scaling.factor")}


def _yarn(said: Said) -> dict[str, Any]:
    """The file's attention factor multiplies the one that follows from the stretch."""
    factor = said.number("rope.scaling.factor")
    made = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": said.whole("rope.scaling.original_context_length"),
        "beta_fast": said.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": said.number("rope.scaling.yarn_beta_slow", 1.0),
    }
    if said.number("rope.scaling.yarn_ext_factor", 1.0) != 1.0:
        raise CheckpointError(f"{said.file} extrapolates yarn, which is not supported", "use the directory")
    told = said.number("rope.scaling.attn_factor", 1.0)
    if told != 1.0 and factor > 1:
        made["attention_factor"] = told * (0.1 * math.log(factor) + 1.0)
    return made


def _longrope(said: Said) -> dict[str, Any]:
    if FACTORS[1] not in said.tensors or FACTORS[2] not in said.tensors:
        raise CheckpointError(f"{said.file} lacks the factors of longrope", "fetch it again")
    made = _factors(said, FACTORS[1], FACTORS[2], said.number("rope.scaling.attn_factor", 1.0))
    return made | {"original_max_position_embeddings": said.whole("rope.scaling.original_context_length")}


def _factors(said: Said, long: str, short: str, magnitude: float) -> dict[str, Any]:
    read = {key: dense(read_tensor(said.tensors[name])) for key, name in (("long", long), ("short", short))}
    return {
        "rope_type": "longrope",
        **{f"{key}_factor": values.reshape(-1).tolist() for key, values in read.items()},
        "attention_factor": magnitude,
    }


def whole_head(said: Said) -> Mapping[str, Any]:
    """`scaling`, of a family that turns whole heads."""
    if rotated_part(said) != 1.0:
        raise CheckpointError(
            f"{said.file} turns a part of a head ({said.architecture}.rope.dimension_count)",
            f"a {said.architecture} that does is not supported",
        )
    return scaling(said)


ROPE = {"rope_theta": _theta, "rope_scaling": whole_head}
PARTIAL_ROPE = {**ROPE, "rope_scaling": scaling, "partial_rotary_factor": rotated_part}
