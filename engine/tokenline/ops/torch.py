"""The array surface on torch: CPU here, CUDA where present."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tokenline.ops import torch_groups
from tokenline.ops.arrays import HostArray, coded, dense
from tokenline.ops.base import WorkCounters
from tokenline.ops.largest import BLOCK, first_by_blocks
from tokenline.ops.memory import free_host_bytes
from tokenline.ops.precision import Precision
from tokenline.ops.scored_attention import scored_attention
from tokenline.ops.stored import StoredArray
from tokenline.ops.torch_experts import expert_linear
from tokenline.ops.torch_weights import Int4Weight, PackedWeight, has_int4_kernel

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


Weight = Tensor | Int4Weight | PackedWeight


class TorchOps:
    """torch on "cpu" or "cuda". Eager: every call is computed, or queued on the CUDA stream, as it is made."""

    name = "torch"

    def __init__(self, dtype: str, threads: int | None, precision: Precision | None = None) -> None:
        self.precision = precision or Precision()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if dtype == "auto":
            dtype = "float32" if self.device == "cpu" else "bfloat16"
        self.dtype = dtype
        self._quantized = dtype == "quantized"
        self._dtype = torch.bfloat16 if self._quantized else _DTYPES[dtype]
        if threads is not None:
            torch.set_num_threads(threads)
        self.threads = torch.get_num_threads()
        self.blas = "torch"
        torch.set_grad_enabled(False)
        self.counters = WorkCounters()
        self._index = torch.int64
        self._packs_dense = (
            self.device == "cpu" and self._dtype != torch.float16 and torch.backends.mkldnn.is_available()
        )

    def array(self, value: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.require(value, requirements=["C", "W"]))
        if np.issubdtype(value.dtype, np.bool_):
            return tensor.to(self.device)
        kind = self._index if np.issubdtype(value.dtype, np.integer) else self._dtype
        return tensor.to(self.device, kind)

    def float32(self, value: np.ndarray) -> Tensor:
        return torch.from_numpy(np.require(value, np.float32, ["C", "W"])).to(self.device)

    def read(self, arrays: Sequence[Tensor]) -> list[np.ndarray]:
        self.counters.host_reads += 1
        return [
            (a.float() if a.dtype in (torch.bfloat16, torch.float16) else a).cpu().numpy() for a in arrays
        ]

    def submit(self, *arrays: Tensor) -> None:
        """Nothing to do: eager kernels were queued (CUDA) or have run (CPU) when they were called."""

    def weight(self, value: HostArray) -> Weight:
        value = coded(value, self.precision)
        if self._quantized and self.device == "cpu" and has_int4_kernel(value):
            return Int4Weight(value)
        return self._product_form(self.table(value))

    def table(self, value: HostArray) -> Tensor:
        matrix = dense(coded(value, self.precision))
        return torch.from_numpy(np.require(matrix, requirements=["C", "W"])).to(self.device, self._dtype)

    def tied(self, table: Tensor) -> Tensor | PackedWeight:
        return self._product_form(table)

    def _product_form(self, matrix: Tensor) -> Tensor | PackedWeight:
        return PackedWeight(matrix) if self._packs_dense else matrix

    def expert_weights(self, values: Sequence[HostArray], *, exact: bool = False) -> list[Weight]:
        if exact:
            return [self._product_form(self.array(dense(value))) for value in values]
        return [self.weight(value) for value in values]

    def weight_bytes(self, weight: Weight | list[Weight]) -> int:
        return sum(each.nbytes for each in weight) if isinstance(weight, list) else weight.nbytes

    def free_bytes(self) -> int:
        return torch.cuda.mem_get_info()[0] if self.device == "cuda" else free_host_bytes()

    def free_unused(self) -> None:
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def linear(self, x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
        if isinstance(weight, PackedWeight):
            return torch.ops.mkldnn._linear_pointwise(x, weight.packed, bias, "none", [], "")
        if isinstance(weight, Int4Weight):
            flat = x.reshape(-1, x.shape[-1])
            y = torch.ops.aten._weight_int4pack_mm_for_cpu(
                flat, weight.packed, weight.group_size, weight.scales_and_zeros
            )
            y = y.view(*x.shape[:-1], weight.rows)
            return y if bias is None else y + bias
        return F.linear(x, weight, bias)

    def expert_linear(
        self, x: Tensor, weights: list[Weight], experts: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        return expert_linear(self, x, weights, experts, bias)

    def embedding(self, ids: Tensor, weight: Tensor) -> Tensor:
        return F.embedding(ids, weight)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, eps)

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return (x * cos + turned * sin).to(x.dtype)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | str | None,
        scale: float,
        *,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        queries, keys = q.shape[2], k.shape[2]
        plain = cap is None and sinks is None
        if plain and isinstance(mask, str) and queries == keys:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
        if isinstance(mask, str):
            # torch's is_causal aligns the first query with the first key; ours are the last of the keys.
            mask = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril_(keys - queries)
            mask = mask[None, None]
        if plain:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
        return scored_attention(self, q, k, v, mask, scale, cap, sinks)

    def swiglu(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    def geglu(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh").mul_(up)

    def tanh(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def sigmoid(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def silu(self, x: Tensor) -> Tensor:
        return F.silu(x)

    def softplus(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def heads(self, x: Tensor, count: int, size: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], count, size).transpose(1, 2)

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def zeros(self, shape: Sequence[int], *, like: Tensor | None = None) -> Tensor:
        dtype = self._dtype if like is None else like.dtype
        return torch.zeros(tuple(shape), dtype=dtype, device=self.device)

    def copy(self, x: Tensor) -> Tensor:
        self.counters.bytes_copied += x.nbytes
        return x.clone(memory_format=torch.contiguous_format)

    def take(self, x: Tensor, indices: Sequence[int]) -> Tensor:
        return x[torch.as_tensor(indices, device=self.device)]

    def concat(self, arrays: Sequence[Tensor], axis: int) -> Tensor:
        return torch.cat(list(arrays), dim=axis)

    def stored(self, x: Tensor) -> StoredArray:
        dtype = str(x.dtype).removeprefix("torch.")
        values = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).cpu().numpy()
        return StoredArray(dtype, values)

    def unstored(self, value: StoredArray) -> Tensor:
        bits = value.values.view(np.int16) if value.dtype == "bfloat16" else value.values
        return torch.from_numpy(bits).view(getattr(torch, value.dtype)).to(self.device)

    def quantize(self, x: Tensor, bits: int, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
        return torch_groups.quantize(x, bits, group_size)

    def dequantize(self, codes: Tensor, scales: Tensor, biases: Tensor, bits: int, group_size: int) -> Tensor:
        return torch_groups.dequantize(codes, scales, biases, bits, group_size)

    def to_float32(self, x: Tensor) -> Tensor:
        return x.float()

    def like(self, x: Tensor, other: Tensor) -> Tensor:
        return x.to(other.dtype)

    def arange(self, start: int, stop: int) -> Tensor:
        return torch.arange(start, stop, device=self.device)

    def argmax(self, x: Tensor) -> Tensor:
        return x.argmax(dim=-1)

    def largest(self, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
        size = x.shape[-1]
        if count >= size or self.device != "cpu":
            values, indices = torch.sort(x, dim=-1, descending=True, stable=True)
            return values[:, :count], indices[:, :count]
        indices = first_by_blocks(self, x, count, _first_of, lambda found: found.sort(dim=-1).values)
        return x.gather(1, indices), indices

    def gather(self, x: Tensor, indices: Tensor) -> Tensor:
        return torch.gather(x, -1, indices)

    def scatter(self, x: Tensor, indices: Tensor, values: Tensor, *, spare: bool = False) -> Tensor:
        return x.scatter_(-1, indices, values) if spare else x.scatter(-1, indices, values)

    def softmax(self, x: Tensor) -> Tensor:
        return torch.softmax(x, dim=-1)

    def log_softmax(self, x: Tensor) -> Tensor:
        return torch.log_softmax(x, dim=-1)

    def cumsum(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, dim=-1)

    def where(self, condition: Tensor, a: Any, b: Any) -> Tensor:
        return torch.where(condition, a, b)

    def exp(self, x: Tensor) -> Tensor:
        return torch.exp(x)

    def log(self, x: Tensor) -> Tensor:
        return torch.log(x)

    def row_sum(self, x: Tensor) -> Tensor:
        size = x.shape[-1]
        if x.dtype == torch.bool and size > _ROW and self.device == "cpu":
            # torch would make integers of all of them first.
            return torch.tensor([[np.count_nonzero(row)] for row in x.numpy()])
        if x.is_floating_point() and size > _ROW:
            # torch splits the sum of a lone long row over its threads and those of a batch over the rows, which
            # rounds otherwise: in two steps neither sum is long.
            whole = size // BLOCK * BLOCK
            blocks = x[..., :whole].unflatten(-1, (-1, BLOCK)).sum(dim=-1)
            x = torch.cat([blocks, x[..., whole:]], -1)
        return x.sum(dim=-1, keepdim=True)

    def above(self, x: Tensor, bound: float, other: float) -> Tensor:
        return F.threshold(x, bound, other)

    def row_max(self, x: Tensor) -> Tensor:
        return x.amax(dim=-1, keepdim=True)

    def to_int(self, x: Tensor) -> Tensor:
        return x.to(self._index)

    def isfinite_row(self, x: Tensor) -> Tensor:
        return torch.isfinite(x.amax(dim=-1))  # a NaN is the maximum of what holds it

    def peek(self, x: Tensor) -> np.ndarray | None:
        return x.numpy() if self.device == "cpu" else None


# A row up to this long is summed in one go: torch gives no thread less than 32768 entries.
_ROW = 4096


def _first_of(x: Tensor, count: int) -> Tensor:
    """Indices of the `count` largest of each row, of equal ones the lower first, by one integer that says both."""
    bits = (x + 0.0).view(torch.int32)  # of the two zeros only the positive one
    ascending = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)
    size = x.shape[-1]
    keys = (ascending << 32) | torch.arange(size - 1, -1, -1, device=x.device)
    return size - 1 - (torch.topk(keys, count).values & 0xFFFFFFFF)
