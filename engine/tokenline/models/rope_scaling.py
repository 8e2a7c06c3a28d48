"""What a configuration says of rotary positions: frequencies and a magnitude, for every kind of scaling.

Kinds that look at the length of the text (`dynamic`, `longrope`) look at the context that the engine was opened with
instead: one set of frequencies for a whole life, or what was cached would be turned otherwise than what comes next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenline.errors import CheckpointError


@dataclass(frozen=True)
class Rotation:
    """`frequencies` float32 [size / 2], in radians per position; cos and sin are multiplied by `magnitude`."""

    frequencies: np.ndarray
    magnitude: float = 1.0


@dataclass(frozen=True)
class _Asked:
    size: int
    theta: float
    scaling: Mapping[str, Any]
    trained: int  # the context of the training before any scaling
    context: int  # what the engine was opened with
    configured: int  # max_position_embeddings

    def plain(self, theta: float | None = None) -> np.ndarray:
        exponents = np.arange(0, self.size, 2, dtype=np.float32) / np.float32(self.size)
        return (1.0 / np.float32(self.theta if theta is None else theta) ** exponents).astype(np.float32)

    @property
    def factor(self) -> float:
        return float(self.scaling["factor"])


def _default(asked: _Asked) -> Rotation:
    return Rotation(asked.plain())


def _linear(asked: _Asked) -> Rotation:
    """Positions are divided by the factor (Chen et al. 2023)."""
    return Rotation(asked.plain() / np.float32(asked.factor))


def _dynamic(asked: _Asked) -> Rotation:
    """The base grows with the length beyond the trained one ("NTK-aware", bloc97 2023)."""
    if asked.context <= asked.trained:
        return Rotation(asked.plain())
    stretch = asked.factor * asked.context / asked.trained - (asked.factor - 1)
    return Rotation(asked.plain(asked.theta * stretch ** (asked.size / (asked.size - 2))))


def _llama3(asked: _Asked) -> Rotation:
    """Long wavelengths are stretched by the factor, short ones kept, those between blended (Llama 3.1)."""
    scaling, frequencies = asked.scaling, asked.plain()
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelengths = 2 * math.pi / frequencies
    span = high - low or 1e-9  # where they meet nothing is blended
    blend = np.clip((scaling["original_max_position_embeddings"] / wavelengths - low) / span, 0, 1)
    return Rotation(((1 - blend) / asked.factor + blend) * frequencies)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """How much attention is sharpened for a context stretched by so much."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _yarn(asked: _Asked) -> Rotation:
    """Dimensions that turn often within the trained length are kept, rare ones stretched, a ramp between them, and
    attention sharpened (Peng et al. 2023, "YaRN")."""
    scaling, frequencies = asked.scaling, asked.plain()

    def dimension(turns: float) -> float:
        return asked.size * math.log(asked.trained / (turns * 2 * math.pi)) / (2 * math.log(asked.theta))

    low = dimension(scaling.get("beta_fast") or 32)
    high = dimension(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, asked.size - 1)
    span = high - low or 0.001
    ramp = np.clip((np.arange(asked.size // 2, dtype=np.float32) - low) / span, 0, 1)
    blended = frequencies / np.float32(asked.factor) * ramp + frequencies * (1 - ramp)
    magnitude = scaling.get("attention_factor")
    if magnitude is None:
        over, under = scaling.get("mscale"), scaling.get("mscale_all_dim")
        magnitude = yarn_magnitude(asked.factor)
        if over and under:
            magnitude = yarn_magnitude(asked.factor, over) / yarn_magnitude(asked.factor, under)
    return Rotation(blended, float(magnitude))


def _longrope(asked: _Asked) -> Rotation:
    """A searched factor per dimension, one set within the trained length and one beyond (Ding et al. 2024)."""
    scaling = asked.scaling
    beyond = asked.context > asked.trained
    factors = np.asarray(scaling["long_factor" if beyond else "short_factor"], dtype=np.float32)
    if len(factors) != asked.size // 2:
        raise CheckpointError(
            f"longrope has {len(factors)} factors for {asked.size // 2} pairs", "mend config.json"
        )
    magnitude = scaling.get("attention_factor")
    if magnitude is None:
        factor = scaling.get("factor") or asked.configured / asked.trained
        magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(asked.trained))
    return Rotation(asked.plain() / factors, float(magnitude))


KINDS: dict[str, Callable[[_Asked], Rotation]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,  # longrope's name in older configurations
}


def rope_settings(config: Mapping[str, Any], kind: str | None = None) -> tuple[float, dict[str, Any]]:
    """theta and the scaling, of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters, of which `kind` names
    one where there are several)."""
    parameters = dict(config.get("rope_parameters") or {})
    if kind is not None and isinstance(parameters.get(kind), Mapping):
        parameters = dict(parameters[kind])
        return float(parameters.get("rope_theta") or 10000.0), parameters
    theta = config.get("rope_theta") or parameters.get("rope_theta") or 10000.0
    return float(theta), dict(config.get("rope_scaling") or parameters)


def rotated_size(config: Mapping[str, Any], head: int, *, factor: float = 1.0) -> int:
    """How many entries of a head are rotated, by `partial_rotary_factor` or the family's own."""
    told = config.get("partial_rotary_factor", rope_settings(config)[1].get("partial_rotary_factor"))
    return int(head * (factor if told is None else told))


def rotation_of(
    config: Mapping[str, Any], size: int, context: int, *, kind: str | None = None, theta: float | None = None
) -> Rotation:
    """For a head of which `size` entries are rotated; CheckpointError for a scaling that is not supported.

    `theta` overrides the configuration's, and its scaling with it (a family's local layers).
    """
    given, scaling = rope_settings(config, kind)
    if theta is not None:
        given, scaling = theta, {}
    name = scaling.get("rope_type", scaling.get("type", "default"))
    if name not in KINDS:
        raise CheckpointError(f"rope of type {name!r} is not supported", f"supported: {', '.join(KINDS)}")
    configured = int(config.get("max_position_embeddings") or context)
    trained = (
        scaling.get("original_max_position_embeddings")
        or config.get("original_max_position_embeddings")
        or configured
    )
    try:
        rotation = KINDS[name](_Asked(size, given, scaling, int(trained), context, configured))
    except KeyError as error:
        raise CheckpointError(f"rope of type {name!r} lacks {error}", "mend config.json") from error
    return Rotation(rotation.frequencies.astype(np.float32), rotation.magnitude)
