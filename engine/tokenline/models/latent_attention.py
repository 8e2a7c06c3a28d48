"""Multi-head latent attention (DeepSeek-V2, 2.1): keys and values of all heads are one compressed vector per token.

Absorbed: instead of expanding the latents of every token into keys and values, the expansion of keys is moved to the
queries and that of values behind the weighted sum, so that the cache is read as it is stored, by all heads alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenline.cache import LatentCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.models.forward import Forward
from tokenline.models.layers import Linear, RmsNorm, Rows
from tokenline.models.rope import RopeTable
from tokenline.ops.arrays import dense
from tokenline.ops.base import Array, Ops


@dataclass(frozen=True)
class LatentSizes:
    width: int
    heads: int
    query_rank: int | None  # None: queries are one projection
    rank: int  # of the latent of keys and values
    rotated: int  # entries of a query's or key's head that are rotated
    plain: int  # entries of it that are not
    value: int  # entries of a value's head


class LatentAttention:
    """A cached vector is the rotated part of the key, which all heads share, then the latent."""

    def __init__(
        self,
        ops: Ops,
        tensors: Tensors,
        name: str,
        sizes: LatentSizes,
        *,
        rope: RopeTable,
        scale: float,
        bias: bool = False,
        eps: float = 1e-6,
    ) -> None:
        self._ops, self._sizes, self._rope, self._scale = ops, sizes, rope, scale
        heads, width, size = sizes.heads, sizes.width, sizes.rotated + sizes.plain

        def rotated_first(count: int, rest: int) -> Rows:
            turned = rope.rows(count)

            def rows(matrix: np.ndarray) -> np.ndarray:
                of_heads = matrix.reshape(count, rest + sizes.rotated, -1)
                moved = np.concatenate([of_heads[:, rest:], of_heads[:, :rest]], axis=1).reshape(matrix.shape)
                return moved if turned is None else turned(moved)

            return rows

        query_rows = [rotated_first(heads, sizes.plain)]
        self._query_down = self._query_norm = None
        if sizes.query_rank is None:
            self._query = Linear(ops, tensors, [(f"{name}.q_proj", heads * size)], width, rows=query_rows)
        else:
            down = [(f"{name}.q_a_proj", sizes.query_rank)]
            self._query_down = Linear(ops, tensors, down, width, bias=bias)
            self._query_norm = RmsNorm(ops, tensors, f"{name}.q_a_layernorm", sizes.query_rank, eps)
            up = [(f"{name}.q_b_proj", heads * size)]
            self._query = Linear(ops, tensors, up, sizes.query_rank, rows=query_rows)
        latent = [(f"{name}.kv_a_proj_with_mqa", sizes.rank + sizes.rotated)]
        self._latent = Linear(ops, tensors, latent, width, bias=bias, rows=[rotated_first(1, sizes.rank)])
        self._latent_norm = RmsNorm(ops, tensors, f"{name}.kv_a_layernorm", sizes.rank, eps)
        keys, values = _expansion(tensors, name, sizes)
        self._keys = ops.array(keys)  # [H, plain, rank]
        self._values = ops.array(values.swapaxes(1, 2))  # [H, rank, value]
        self._out = Linear(ops, tensors, [(f"{name}.o_proj", width)], heads * sizes.value, bias=bias)

    @property
    def nbytes(self) -> int:
        linears = [self._query, self._latent, self._out, *([self._query_down] if self._query_down else [])]
        return sum(each.nbytes for each in linears) + self._keys.nbytes + self._values.nbytes

    def __call__(self, x: Array, forward: Forward, cache: LatentCache) -> Array:
        ops, sizes, rope = self._ops, self._sizes, self._rope
        q = (
            x
            if self._query_down is None or self._query_norm is None
            else self._query_norm(self._query_down(x))
        )
        queries = ops.heads(self._query(q), sizes.heads, sizes.rotated + sizes.plain)
        latent = ops.heads(self._latent(x), 1, sizes.rotated + sizes.rank)
        angles = forward.angles(rope, cache)
        queries = ops.concat(
            [
                rope.turn(queries[..., : sizes.rotated], *angles),
                queries[..., sizes.rotated :] @ self._keys,
            ],
            -1,
        )
        told = ops.concat(
            [
                rope.turn(latent[..., : sizes.rotated], *angles),
                self._latent_norm(latent[..., sizes.rotated :]),
            ],
            -1,
        )
        mask = forward.mask(cache)
        (seen,) = cache.update(told)
        said = ops.attention(queries, seen, seen[..., sizes.rotated :], mask, self._scale)
        return self._out(ops.merge_heads(said @ self._values))


def _expansion(tensors: Tensors, name: str, sizes: LatentSizes) -> tuple[np.ndarray, np.ndarray]:
    """From the latent to each head's keys [H, plain, rank] and values [H, value, rank]: in one matrix as published, or
    apart as mlx-lm stores them."""
    heads, plain, value, rank = sizes.heads, sizes.plain, sizes.value, sizes.rank
    if f"{name}.embed_q.weight" in tensors:
        keys = dense(tensors.take(f"{name}.embed_q.weight", (heads, rank, plain))).swapaxes(1, 2)
        return keys, dense(tensors.take(f"{name}.unembed_out.weight", (heads, value, rank)))
    both = dense(tensors.take(f"{name}.kv_b_proj.weight", (heads * (plain + value), rank)))
    both = both.reshape(heads, plain + value, rank)
    return both[:, :plain], both[:, plain:]
