"""The array surface on MLX: Metal and CUDA where present, Linux CPU with a real BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from tokenline.ops.arrays import HostArray, QuantizedArray, coded, dense, stack_rows
from tokenline.ops.base import WorkCounters
from tokenline.ops.blas import load_blas
from tokenline.ops.largest import first_by_blocks
from tokenline.ops.memory import free_host_bytes
from tokenline.ops.precision import Precision
from tokenline.ops.scored_attention import scored_attention
from tokenline.ops.stored import StoredArray

_BLAS = load_blas()  # must come before mlx.core, which binds cblas symbols as it loads

import mlx.core as mx  # noqa: E402
from mlx.nn import gelu_approx  # noqa: E402

from tokenline.ops.mlx_weights import ColumnWeight, PackedWeight  # noqa: E402

_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


Weight = mx.array | PackedWeight | ColumnWeight


class MlxOps:
    """MLX on its default device. Lazy: `submit` hands the graph to the device and returns."""

    name = "mlx"

    def __init__(self, dtype: str, threads: int | None, precision: Precision | None = None) -> None:
        self.precision = precision or Precision()
        self.device = "gpu" if mx.default_device() == mx.Device(mx.gpu) else "cpu"
        if dtype == "auto":
            dtype = "float32" if self.device == "cpu" else "bfloat16"
        self.dtype = dtype
        # On a CPU quantized_matmul runs on one thread and is slower than a dense product: dequantize there.
        self._packs = dtype == "quantized" and self.device == "gpu"
        if dtype == "quantized":
            self._dtype = mx.bfloat16 if self.device == "gpu" else mx.float32
        else:
            self._dtype = _DTYPES[dtype]
        self.threads = _BLAS.set_threads(threads)
        self.blas = _BLAS.name
        self.counters = WorkCounters()

    def array(self, value: np.ndarray) -> mx.array:
        if np.issubdtype(value.dtype, np.bool_):
            return mx.array(value)
        return mx.array(value).astype(mx.int32 if np.issubdtype(value.dtype, np.integer) else self._dtype)

    def float32(self, value: np.ndarray) -> mx.array:
        return mx.array(np.asarray(value, dtype=np.float32))

    def read(self, arrays: Sequence[mx.array]) -> list[np.ndarray]:
        self.counters.host_reads += 1
        mx.eval(*arrays)
        return [np.array(a.astype(mx.float32) if a.dtype in (mx.bfloat16, mx.float16) else a) for a in arrays]

    def submit(self, *arrays: mx.array) -> None:
        mx.async_eval(*arrays)

    def weight(self, value: HostArray) -> Weight:
        table = self.table(value)
        return ColumnWeight(table) if self._by_columns(table) else table

    def table(self, value: HostArray) -> mx.array | PackedWeight:
        value = coded(value, self.precision)
        if self._packs and isinstance(value, QuantizedArray):
            return PackedWeight(value, self._dtype)
        array = mx.array(dense(value)).astype(self._dtype)
        mx.eval(array)
        return array

    def tied(self, table: mx.array | PackedWeight) -> Weight:
        return ColumnWeight(table, rows=table) if self._by_columns(table) else table

    def _by_columns(self, table: mx.array | PackedWeight) -> TypeGuard[mx.array]:
        return self.device == "cpu" and isinstance(table, mx.array)

    def expert_weights(self, values: Sequence[HostArray], *, exact: bool = False) -> mx.array | PackedWeight:
        values = [value if exact else coded(value, self.precision) for value in values]
        if self._packs and not exact and isinstance(together := stack_rows(values), QuantizedArray):
            return PackedWeight(together, self._dtype, experts=len(values))
        # The CPU's gather_mm takes float32 alone.
        dtype = mx.float32 if self.device == "cpu" else self._dtype
        stacked = mx.stack([mx.array(dense(value)).astype(dtype) for value in values])
        mx.eval(stacked)
        return stacked

    def weight_bytes(self, weight: Weight) -> int:
        return weight.nbytes

    def free_bytes(self) -> int:
        if self.device == "cpu":
            return free_host_bytes()
        told = mx.device_info()
        most = told.get("max_recommended_working_set_size") or told["memory_size"]
        return max(0, int(most) - mx.get_active_memory())

    def free_unused(self) -> None:
        mx.clear_cache()

    def linear(self, x: mx.array, weight: Weight, bias: mx.array | None = None) -> mx.array:
        if isinstance(weight, PackedWeight):
            y = mx.quantized_matmul(
                x,
                weight.words,
                weight.scales,
                weight.biases,
                transpose=True,
                group_size=weight.group_size,
                bits=weight.bits,
            )
        elif isinstance(weight, ColumnWeight):
            y = weight.product(x)
        else:
            y = x @ weight.T
        return y if bias is None else y + bias

    def expert_linear(
        self, x: mx.array, weights: mx.array | PackedWeight, experts: mx.array, bias: mx.array | None = None
    ) -> mx.array:
        rows = x[:, :, None]
        if isinstance(weights, PackedWeight):
            y = mx.gather_qmm(
                rows,
                weights.words,
                weights.scales,
                weights.biases,
                rhs_indices=experts,
                transpose=True,
                group_size=weights.group_size,
                bits=weights.bits,
            )
        else:
            y = mx.gather_mm(rows.astype(weights.dtype), weights.swapaxes(-1, -2), rhs_indices=experts)
        y = y[:, :, 0].astype(x.dtype)
        return y if bias is None else y + bias[experts]

    def embedding(self, ids: mx.array, weight: mx.array | PackedWeight) -> mx.array:
        if isinstance(weight, PackedWeight):
            return mx.dequantize(
                weight.words[ids],
                weight.scales[ids],
                weight.biases[ids],
                group_size=weight.group_size,
                bits=weight.bits,
            )
        return weight[ids]

    def rms_norm(self, x: mx.array, weight: mx.array, eps: float) -> mx.array:
        return mx.fast.rms_norm(x, weight, eps)

    def rope(self, x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
        half = x.shape[-1] // 2
        turned = mx.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return (x * cos + turned * sin).astype(x.dtype)

    def layer_norm(self, x: mx.array, weight: mx.array, bias: mx.array | None, eps: float) -> mx.array:
        return mx.fast.layer_norm(x, weight, bias, eps)

    def attention(
        self,
        q: mx.array,
        k: mx.array,
        v: mx.array,
        mask: mx.array | str | None,
        scale: float,
        *,
        cap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        if cap is None and sinks is None:
            return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask)
        if isinstance(mask, str):
            queries, keys = q.shape[2], k.shape[2]
            mask = mx.tril(mx.ones((queries, keys), dtype=mx.bool_), k=keys - queries)[None, None]
        return scored_attention(self, q, k, v, mask, scale, cap, sinks)

    def swiglu(self, gate_up: mx.array) -> mx.array:
        gate, up = mx.split(gate_up, 2, axis=-1)
        return gate * mx.sigmoid(gate) * up

    def geglu(self, gate_up: mx.array) -> mx.array:
        gate, up = mx.split(gate_up, 2, axis=-1)
        return gelu_approx(gate) * up

    def tanh(self, x: mx.array) -> mx.array:
        return mx.tanh(x)

    def sigmoid(self, x: mx.array) -> mx.array:
        return mx.sigmoid(x)

    def silu(self, x: mx.array) -> mx.array:
        return x * mx.sigmoid(x)

    def softplus(self, x: mx.array) -> mx.array:
        return mx.logaddexp(x, mx.zeros((), dtype=x.dtype))

    def heads(self, x: mx.array, count: int, size: int) -> mx.array:
        return x.reshape(x.shape[0], x.shape[1], count, size).transpose(0, 2, 1, 3)

    def merge_heads(self, x: mx.array) -> mx.array:
        rows, _, tokens, _ = x.shape
        return x.transpose(0, 2, 1, 3).reshape(rows, tokens, -1)

    def zeros(self, shape: Sequence[int], *, like: mx.array | None = None) -> mx.array:
        return mx.zeros(tuple(shape), dtype=self._dtype if like is None else like.dtype)

    def copy(self, x: mx.array) -> mx.array:
        self.counters.bytes_copied += x.nbytes
        copied = mx.contiguous(mx.array(x))
        mx.eval(copied)
        return copied

    def take(self, x: mx.array, indices: Sequence[int]) -> mx.array:
        return x[mx.array(list(indices))]

    def concat(self, arrays: Sequence[mx.array], axis: int) -> mx.array:
        return mx.concatenate(list(arrays), axis=axis)

    def stored(self, x: mx.array) -> StoredArray:
        dtype = str(x.dtype).removeprefix("mlx.core.")
        return StoredArray(dtype, np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x))

    def unstored(self, value: StoredArray) -> mx.array:
        return mx.array(value.values).view(getattr(mx, value.dtype))

    def quantize(self, x: mx.array, bits: int, group_size: int) -> tuple[mx.array, mx.array, mx.array]:
        codes, scales, biases = mx.quantize(x, group_size=group_size, bits=bits)
        return codes, scales, biases

    def dequantize(
        self, codes: mx.array, scales: mx.array, biases: mx.array, bits: int, group_size: int
    ) -> mx.array:
        return mx.dequantize(codes, scales, biases, group_size=group_size, bits=bits)

    def to_float32(self, x: mx.array) -> mx.array:
        return x.astype(mx.float32)

    def like(self, x: mx.array, other: mx.array) -> mx.array:
        return x.astype(other.dtype)

    def arange(self, start: int, stop: int) -> mx.array:
        return mx.arange(start, stop, dtype=mx.int32)

    def argmax(self, x: mx.array) -> mx.array:
        return mx.argmax(x, axis=-1)

    def largest(self, x: mx.array, count: int) -> tuple[mx.array, mx.array]:
        indices = first_by_blocks(self, x, count, _first_of, lambda found: mx.sort(found, axis=-1))
        return mx.take_along_axis(x, indices, axis=-1), indices

    def gather(self, x: mx.array, indices: mx.array) -> mx.array:
        return mx.take_along_axis(x, indices, axis=-1)

    def scatter(self, x: mx.array, indices: mx.array, values: mx.array, *, spare: bool = False) -> mx.array:
        return mx.put_along_axis(x, indices, values, axis=-1)

    def softmax(self, x: mx.array) -> mx.array:
        return mx.softmax(x, axis=-1)

    def log_softmax(self, x: mx.array) -> mx.array:
        return x - mx.logsumexp(x, axis=-1, keepdims=True)

    def cumsum(self, x: mx.array) -> mx.array:
        return mx.cumsum(x, axis=-1)

    def where(self, condition: mx.array, a: Any, b: Any) -> mx.array:
        return mx.where(condition, a, b)

    def exp(self, x: mx.array) -> mx.array:
        return mx.exp(x)

    def log(self, x: mx.array) -> mx.array:
        return mx.log(x)

    def row_sum(self, x: mx.array) -> mx.array:
        return x.sum(axis=-1, keepdims=True)

    def above(self, x: mx.array, bound: float, other: float) -> mx.array:
        return mx.where(x > bound, x, other)

    def row_max(self, x: mx.array) -> mx.array:
        return x.max(axis=-1, keepdims=True)

    def to_int(self, x: mx.array) -> mx.array:
        return x.astype(mx.int32)

    def isfinite_row(self, x: mx.array) -> mx.array:
        return mx.isfinite(x.max(axis=-1)) & ~mx.isnan(x).any(axis=-1)

    def peek(self, x: mx.array) -> np.ndarray | None:
        return np.array(x) if self.device == "cpu" else None


def _first_of(x: mx.array, count: int) -> mx.array:
    """Indices of the `count` largest of each row, of equal ones the lower first, by one integer that says both:
    choosing among integers is several times faster than sorting indices."""
    size = x.shape[-1]
    if count >= size:
        return mx.argsort(-x, axis=-1).astype(mx.int32)  # stable
    bits = mx.view(x + 0.0, mx.int32)  # of the two zeros only the positive one
    ascending = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(mx.int64)
    keys = -((ascending << 32) | mx.arange(size - 1, -1, -1, dtype=mx.int64))
    first = mx.sort(mx.partition(keys, count, axis=-1)[:, :count], axis=-1)
    return (size - 1 - (-first & 0xFFFFFFFF)).astype(mx.int32)
