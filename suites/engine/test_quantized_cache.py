"""Caches in a few bits: what mlx-lm's hold, and everything that a cache of the dequantized values does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import QuantizedKVCache

from tokenline.cache import DenseCache, LatentCache, WindowCache
from tokenline.cache.dense import capacity
from tokenline.errors import BackendError
from tokenline.ops import Ops, Precision, open_ops

HEADS, SIZE = 2, 64
KINDS: dict[str, Callable[[Ops], DenseCache]] = {
    "dense": lambda ops: DenseCache(ops, HEADS, SIZE),
    "window": lambda ops: WindowCache(ops, 40, HEADS, SIZE),
    "latent": lambda ops: LatentCache(ops, 96),
}


def entries(seed: int, rows: int, tokens: int, kind: str) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    if kind == "latent":
        return [rng.normal(0, 2, (rows, 1, tokens, 96)).astype(np.float32)]
    return [rng.normal(0, 2, (rows, HEADS, tokens, SIZE)).astype(np.float32) for _ in "kv"]


def through_mlx(array: np.ndarray, bits: int) -> np.ndarray:
    """What is left of the numbers after MLX has quantized them."""
    group = 64 if array.shape[-1] % 64 == 0 else 32
    codes = mx.quantize(mx.array(array), group_size=group, bits=bits)
    return np.array(mx.dequantize(*codes, group_size=group, bits=bits))


class Both:
    """A cache of `bits` beside a plain one that is given what MLX's quantization leaves; both do the same."""

    def __init__(self, backend: str, kind: str, bits: int) -> None:
        self.kind, self.bits = kind, bits
        self.sides = [
            open_ops(backend, "float32", 1, Precision(kv_bits=bits)),
            open_ops(backend, "float32", 1),
        ]
        self.caches = [KINDS[kind](ops) for ops in self.sides]

    def push(self, seed: int, tokens: int) -> None:
        arrays = entries(seed, self.caches[0].rows, tokens, self.kind)
        given = [arrays, [through_mlx(array, self.bits) for array in arrays]]
        seen = [
            ops.read(list(cache.update(*(ops.array(array) for array in each))))
            for ops, cache, each in zip(self.sides, self.caches, given, strict=True)
        ]
        for ours, plain in zip(*seen, strict=True):
            np.testing.assert_allclose(ours, plain, rtol=2e-6, atol=1e-6)

    def split(self, made: Callable[[DenseCache], DenseCache]) -> Both:
        other = object.__new__(Both)
        other.kind, other.bits, other.sides = self.kind, self.bits, self.sides
        other.caches = [made(cache) for cache in self.caches]
        return other

    def all(self, does: Callable[[DenseCache], object]) -> Sequence[object]:
        done = [does(cache) for cache in self.caches]
        assert done[0] == done[1]
        return done


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_is_a_plain_caches(backend: str, kind: str, bits: int) -> None:
    both = Both(backend, kind, bits)
    both.push(1, 250)
    both.push(2, 9)  # through the buffers' growth
    copied = both.split(lambda cache: cache.copy())
    both.push(3, 1)
    assert both.all(lambda cache: cache.rewind(1)) == [True, True]
    both.push(4, 1)
    copied.push(4, 1)
    shorter = Both(backend, kind, bits)
    shorter.push(5, 30)
    for cache, joiner in zip(both.caches, shorter.caches, strict=True):
        cache.extend(joiner)
    both.push(6, 1)
    both.push(7, 3)
    alone = both.split(lambda cache: cache.extract(1))
    alone.push(8, 2)
    both.all(lambda cache: cache.filter([1]))
    both.all(lambda cache: (cache.length, cache.padding))
    both.push(9, 5)
    both.all(lambda cache: cache.trim(2))
    both.push(10, 300)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_values_are_mlx_lms(backend: str, bits: int) -> None:
    ops = open_ops(backend, "float32", 1, Precision(kv_bits=bits))
    ours, theirs = DenseCache(ops, HEADS, SIZE), QuantizedKVCache(group_size=64, bits=bits)
    for seed, tokens in enumerate((300, 1, 1, 17)):
        arrays = entries(seed, 1, tokens, "dense")
        seen = ops.read(list(ours.update(*(ops.array(array) for array in arrays))))
        held = theirs.update_and_fetch(*(mx.array(array) for array in arrays))
        for mine, codes in zip(seen, held, strict=True):
            dequantized = np.array(mx.dequantize(*codes, group_size=64, bits=bits))
            np.testing.assert_allclose(mine, dequantized, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(("bits", "bytes_of_an_entry"), [(8, 64 + 8), (4, 32 + 8)])
def test_an_entry_takes_its_codes_a_scale_and_a_bias(backend: str, bits: int, bytes_of_an_entry: int) -> None:
    ops = open_ops(backend, "float32", 1, Precision(kv_bits=bits))
    cache = DenseCache(ops, HEADS, SIZE)
    cache.update(*(ops.array(array) for array in entries(0, 1, 300, "dense")))
    assert cache.nbytes == 2 * HEADS * capacity(300) * bytes_of_an_entry


def test_heads_without_whole_groups_are_refused(backend: str) -> None:
    with pytest.raises(BackendError, match="16 entries"):
        DenseCache(open_ops(backend, "float32", 1, Precision(kv_bits=8)), HEADS, 16)


@pytest.mark.parametrize(
    "wrong", [{"kv_bits": 5}, {"weight_bits": 3}, {"weight_bits": 4, "weight_group": 48}]
)
def test_other_bits_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(BackendError, match=list(wrong)[-1]):
        Precision(**wrong)
