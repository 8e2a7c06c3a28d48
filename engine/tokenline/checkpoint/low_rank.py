"""What an adapter adds to one matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenline.errors import CheckpointError


@dataclass(frozen=True)
class LowRank:
    """A matrix W [N, K] becomes W + b @ a (LoRA, Hu et al. 2021). With a `magnitude` [N], each of its rows is then
    brought to that length (DoRA, Liu et al. 2024).

    a float32 [r, K]; b float32 [N, r], the adapter's scale in it.
    """

    a: np.ndarray
    b: np.ndarray
    magnitude: np.ndarray | None

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix that it belongs to."""
        return self.b.shape[0], self.a.shape[1]

    def lengths(self, weight: np.ndarray) -> np.ndarray:
        """float32 [N], of the rows of the changed matrix before they are brought to the magnitude."""
        changed = weight.astype(np.float64) + self.b.astype(np.float64) @ self.a
        return np.sqrt((changed * changed).sum(1)).astype(np.float32)


def low_rank(
    module: str, a: np.ndarray, b: np.ndarray, magnitude: np.ndarray | None, rank: int, scale: float
) -> LowRank:
    """From a [r, K] and b [N, r] as they were trained; CheckpointError where they make no term of that rank."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != rank or b.shape[1] != rank:
        raise CheckpointError(
            f"the matrices of {module}, {list(a.shape)} and {list(b.shape)}, are of no projection at rank {rank}",
            "configuration and weights belong to different adapters, or the module is no plain projection",
        )
    if magnitude is not None:
        magnitude = magnitude.reshape(-1)
        if magnitude.shape[0] != b.shape[0]:
            raise CheckpointError(
                f"{module} has {magnitude.shape[0]} magnitudes for {b.shape[0]} rows",
                "fetch the adapter again",
            )
    return LowRank(a, b * np.float32(scale), magnitude)
