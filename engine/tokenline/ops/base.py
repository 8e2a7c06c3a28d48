"""The array surface that families, caches and the sampler are written over, once for every backend.

Both array types already support arithmetic, comparison, slicing, slice assignment and `.shape`; the surface
adds only what differs. Shapes: B rows, T tokens, H heads, D head size, S cached tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tokenline.ops.arrays import HostArray
from tokenline.ops.precision import Precision
from tokenline.ops.stored import StoredArray

Array = Any  # torch.Tensor or mlx.core.array
Weight = Any  # what `Ops.weight` returned: a dense array or a backend's packed one


@dataclass
class WorkCounters:
    """Work that is exact on any machine: a change of these numbers is a change of the algorithm."""

    host_reads: int = 0
    bytes_copied: int = 0


class Ops(Protocol):
    """One backend on one device at one dtype."""

    name: str
    device: str
    dtype: str
    precision: Precision
    threads: int
    blas: str
    counters: WorkCounters

    # between host and device
    def array(self, value: np.ndarray) -> Array:
        """A device array: integers as int32 (int64 where the backend indexes so), floats in `dtype`."""
        ...

    def float32(self, value: np.ndarray) -> Array:
        """A device array that stays float32 whatever `dtype` is: sampler parameters, rope tables."""
        ...

    def read(self, arrays: Sequence[Array]) -> list[np.ndarray]:
        """Wait for the arrays and copy them to the host; counted as one host read."""
        ...

    def submit(self, *arrays: Array) -> None:
        """Start computing the arrays and return at once where the backend can."""
        ...

    def weight(self, value: HostArray) -> Weight:
        """Move a checkpoint's matrix to the device, quantized where there is a fast path, else in `dtype`."""
        ...

    def table(self, value: HostArray) -> Weight:
        """A matrix whose rows `embedding` looks up."""
        ...

    def tied(self, table: Weight) -> Weight:
        """An embedding's matrix as `linear` takes it: the table itself where the kernels read both alike."""
        ...

    def expert_weights(self, values: Sequence[HostArray], *, exact: bool = False) -> Weight:
        """One matrix [M, K] for each expert, as `expert_linear` takes them; `exact` in no fewer bits than it has."""
        ...

    def weight_bytes(self, weight: Weight) -> int: ...

    def free_bytes(self) -> int:
        """Memory of the device that could still be taken."""
        ...

    def free_unused(self) -> None:
        """Give the allocator's unused buffers back (the cache-clear cadence)."""
        ...

    # network
    def linear(self, x: Array, weight: Weight, bias: Array | None = None) -> Array:
        """x [..., K] by weight [N, K] -> [..., N]."""
        ...

    def expert_linear(self, x: Array, weights: Weight, experts: Array, bias: Array | None = None) -> Array:
        """Each row by the matrix of its expert: x [N, 1 or C, K], experts int [N, C], bias [E, M] -> [N, C, M]."""
        ...

    def embedding(self, ids: Array, weight: Weight) -> Array:
        """ids [B, T] -> [B, T, width] in `dtype`."""
        ...

    def rms_norm(self, x: Array, weight: Array, eps: float) -> Array: ...
    def layer_norm(self, x: Array, weight: Array, bias: Array | None, eps: float) -> Array: ...

    def rope(self, x: Array, cos: Array, sin: Array) -> Array:
        """Rotate halves: x [B, H, T, D], cos and sin [B or 1, 1, T, D]."""
        ...

    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | str | None,
        scale: float,
        *,
        cap: float | None = None,
        sinks: Array | None = None,
    ) -> Array:
        """q [B, H, T, D], k [B, Hkv, S, D], v [B, Hkv, S, Dv] -> [B, H, T, Dv].

        mask: None (every position is seen), "causal" (the T queries are the last T of the S positions), or a
        bool array [B, 1, T, S], True where seen. cap: scores become cap * tanh(scores / cap). sinks [H]: a score per
        head that takes its part of the softmax and has no value.
        """
        ...

    def swiglu(self, gate_up: Array) -> Array:
        """[..., 2F], gate first -> silu(gate) * up, [..., F]."""
        ...

    def geglu(self, gate_up: Array) -> Array:
        """[..., 2F], gate first -> gelu(gate) * up, [..., F], gelu by its tanh approximation."""
        ...

    def tanh(self, x: Array) -> Array: ...
    def sigmoid(self, x: Array) -> Array: ...
    def silu(self, x: Array) -> Array: ...
    def softplus(self, x: Array) -> Array: ...

    # shapes
    def heads(self, x: Array, count: int, size: int) -> Array:
        """[B, T, count * size] -> [B, count, T, size]."""
        ...

    def merge_heads(self, x: Array) -> Array:
        """[B, H, T, D] -> [B, T, H * D]."""
        ...

    def zeros(self, shape: Sequence[int], *, like: Array | None = None) -> Array:
        """In `dtype`, or in that of another array."""
        ...

    def copy(self, x: Array) -> Array:
        """A copy that shares nothing with x; its bytes are counted."""
        ...

    def take(self, x: Array, indices: Sequence[int]) -> Array:
        """Rows of axis 0."""
        ...

    def concat(self, arrays: Sequence[Array], axis: int) -> Array: ...

    # outside the backend
    def stored(self, x: Array) -> StoredArray:
        """On the host, bit for bit whatever its dtype is."""
        ...

    def unstored(self, value: StoredArray) -> Array:
        """The array that was stored; it may keep the memory of the value."""
        ...

    # a few bits for a number
    def quantize(self, x: Array, bits: int, group_size: int) -> tuple[Array, Array, Array]:
        """x [..., K] in groups along the last axis -> codes (packed as the backend likes), scales and biases
        [..., K / group_size] in x's dtype, so that x is nearly code * scale + bias; MLX's affine quantization."""
        ...

    def dequantize(self, codes: Array, scales: Array, biases: Array, bits: int, group_size: int) -> Array:
        """[..., K] in the dtype of the scales."""
        ...

    # sampling, float32 [rows, V]
    def to_float32(self, x: Array) -> Array: ...
    def like(self, x: Array, other: Array) -> Array:
        """x in the dtype of the other."""
        ...

    def arange(self, start: int, stop: int) -> Array:
        """start, start + 1, …, stop - 1, as indices."""
        ...

    def argmax(self, x: Array) -> Array: ...
    def largest(self, x: Array, count: int) -> tuple[Array, Array]:
        """Values and indices of the `count` largest of each row, descending; of equal ones the lower index first.
        All of them where there are fewer."""
        ...

    def gather(self, x: Array, indices: Array) -> Array:
        """Along the last axis."""
        ...

    def scatter(self, x: Array, indices: Array, values: Array, *, spare: bool = False) -> Array:
        """An array with x's entries at `indices` (last axis) replaced; x itself where it is spare, else a new one."""
        ...

    def softmax(self, x: Array) -> Array: ...
    def log_softmax(self, x: Array) -> Array: ...
    def cumsum(self, x: Array) -> Array: ...
    def where(self, condition: Array, a: Any, b: Any) -> Array: ...
    def exp(self, x: Array) -> Array: ...
    def log(self, x: Array) -> Array: ...
    def row_sum(self, x: Array) -> Array:
        """Sum over the last axis, which stays with size 1; of bools how many are True. A row's bits are the same alone
        and in a batch."""
        ...

    def above(self, x: Array, bound: float, other: float) -> Array:
        """Entries above the bound as they are, the others as `other`: a `where` of one pass."""
        ...

    def row_max(self, x: Array) -> Array: ...
    def to_int(self, x: Array) -> Array: ...
    def isfinite_row(self, x: Array) -> Array:
        """[rows, V] -> [rows]: whether no entry is NaN or +infinity and one is above -infinity."""
        ...

    def peek(self, x: Array) -> np.ndarray | None:
        """The values where looking costs less than what it saves (the host computes them anyway), else None; no
        host read."""
        ...
