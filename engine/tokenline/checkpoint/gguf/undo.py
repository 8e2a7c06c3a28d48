"""What llama.cpp's converter does to a directory's matrices, undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tokenline.ops.arrays import HostArray, dense, map_rows

# A file's matrix and the configuration -> the directory's matrix.
Undo = Callable[[HostArray, Mapping[str, Any]], HostArray]
# As many matrices as a row names -> one.
Join = Callable[[Sequence[HostArray], Mapping[str, Any]], HostArray]


def pairs_as_halves(heads_key: str) -> Undo:
    """The rows of q or k, stored so that rope pairs are neighbours: pairs are the halves of a head."""

    def undo(array: HostArray, config: Mapping[str, Any]) -> HostArray:
        heads = config[heads_key]

        def change(rows: np.ndarray) -> np.ndarray:
            by_pair = rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1)
            return by_pair.swapaxes(1, 2).reshape(rows.shape)

        return map_rows(array, change)

    return undo


def around_zero(array: HostArray, config: Mapping[str, Any]) -> HostArray:
    """A norm's weights, stored with the one that the family adds."""
    return dense(array) - np.float32(1)


def logarithm(array: HostArray, config: Mapping[str, Any]) -> HostArray:
    """A_log of A = -exp(A_log)."""
    return np.log(-dense(array)).reshape(-1)


def flat(array: HostArray, config: Mapping[str, Any]) -> HostArray:
    return dense(array).reshape(-1)


def taps(array: HostArray, config: Mapping[str, Any]) -> HostArray:
    """A convolution over each channel by itself: [channels, 1, taps]."""
    matrix = dense(array)
    return matrix[:, None] if matrix.ndim == 2 else matrix


def gates_above_ups(parts: Sequence[HostArray], config: Mapping[str, Any]) -> HostArray:
    """Gate and up projections, of one MLP or stacked, as one."""
    return np.concatenate([dense(part) for part in parts], axis=-2)


def gates_and_ups_in_turn(parts: Sequence[HostArray], config: Mapping[str, Any]) -> HostArray:
    """gpt-oss: gate, up, gate, up, …; matrices [E, K, 2F], biases [E, 2F]."""
    gate, up = (dense(part) for part in parts)
    rows = np.stack([gate, up], axis=2).reshape(gate.shape[0], -1, *gate.shape[2:])
    return rows.swapaxes(1, 2) if rows.ndim == 3 else rows


def turned(array: HostArray, config: Mapping[str, Any]) -> HostArray:
    """Stacked matrices [E, M, K] as [E, K, M]."""
    return dense(array).swapaxes(1, 2)


def by_key_head(parts: Sequence[HostArray], config: Mapping[str, Any]) -> HostArray:
    """Qwen 3 Next: q, k, v and z of one key head after another, of all heads' q, k, v and their z."""
    heads, keys = (
        config["linear_num_key_heads"],
        config["linear_num_key_heads"] * config["linear_key_head_dim"],
    )
    qkv, z = (dense(part) for part in parts)
    each = [part.reshape(heads, -1, z.shape[1]) for part in (*np.split(qkv, [keys, 2 * keys]), z)]
    return np.concatenate(each, axis=1).reshape(-1, z.shape[1])


def _by_key_head(rows: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    return rows.reshape(values // keys, keys, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def value_heads(before: Undo | None = None, *, axis: int = 0, after_keys: bool = False) -> Undo:
    """Qwen 3.5: value heads stored in turn over the key heads, put back to one key head after another. `before` is
    undone first; `after_keys`: the rows of q and k come before them."""

    def undo(array: HostArray, config: Mapping[str, Any]) -> HostArray:
        rows = dense(array if before is None else before(array, config)).swapaxes(0, axis)
        start = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] if after_keys else 0
        ordered = np.concatenate([rows[:start], _by_key_head(rows[start:], config)])
        return np.ascontiguousarray(ordered.swapaxes(0, axis))

    return undo
