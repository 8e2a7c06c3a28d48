"""The array surface on each backend against numpy and published formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from drawn_arrays import draws, normal, read

from tokenline.errors import BackendError
from tokenline.ops import Ops, open_ops
from tokenline.ops.arrays import QuantizedArray, dense, map_rows, stack_rows


def test_linear_and_embedding(ops: Ops) -> None:
    x, weight, bias = normal(2, 3, 8), normal(5, 8), normal(5)
    got = ops.linear(ops.array(x), ops.weight(weight), ops.array(bias))
    np.testing.assert_allclose(read(ops, got), x @ weight.T + bias, rtol=1e-5, atol=1e-5)
    ids = np.array([[4, 0, 4]])
    np.testing.assert_array_equal(read(ops, ops.embedding(ops.array(ids), ops.table(weight))), weight[ids])


def test_rms_norm(ops: Ops) -> None:
    x, weight = normal(2, 3, 16), normal(16)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(
        read(ops, ops.rms_norm(ops.array(x), ops.array(weight), 1e-5)), expected, rtol=1e-5
    )


def test_rope_rotates_each_pair_of_halves(ops: Ops) -> None:
    x = normal(1, 2, 3, 4)
    angles = np.array([[0.1, 0.7], [1.1, 2.0], [3.0, 0.2]], np.float32)
    table = np.concatenate([angles, angles], -1)[None, None]
    got = read(ops, ops.rope(ops.array(x), ops.array(np.cos(table)), ops.array(np.sin(table))))
    pairs = x[..., :2] + 1j * x[..., 2:]  # a pair is a complex number, turned by its angle
    turned = pairs * np.exp(1j * angles)
    np.testing.assert_allclose(got, np.concatenate([turned.real, turned.imag], -1), rtol=1e-5, atol=1e-6)


def test_swiglu(ops: Ops) -> None:
    x = normal(2, 1, 8)
    gate, up = np.split(x.astype(np.float64), 2, -1)
    np.testing.assert_allclose(
        read(ops, ops.swiglu(ops.array(x))), gate / (1 + np.exp(-gate)) * up, rtol=1e-5
    )


def test_heads_and_back(ops: Ops) -> None:
    x = normal(2, 3, 8)
    heads = ops.heads(ops.array(x), 4, 2)
    np.testing.assert_array_equal(read(ops, heads), x.reshape(2, 3, 4, 2).transpose(0, 2, 1, 3))
    np.testing.assert_array_equal(read(ops, ops.merge_heads(heads)), x)


def test_sorting_is_stable_and_descending(ops: Ops) -> None:
    x = np.array([[1.0, 3.0, 3.0, 2.0, 3.0, -np.inf]], np.float32)
    values, indices = ops.read(ops.largest(ops.float32(x), 6))
    assert indices.tolist() == [[1, 2, 4, 3, 0, 5]]
    assert values.tolist() == [[3, 3, 3, 2, 1, -np.inf]]
    assert read(ops, ops.argmax(ops.float32(x))).tolist() == [1]


@pytest.mark.parametrize("size", [100, 128, 8192, 20_011])
@pytest.mark.parametrize("count", [1, 50, 128, 1024])
def test_the_largest_are_the_head_of_numpys_stable_sort(ops: Ops, size: int, count: int) -> None:
    """Few different values, so that ties stand at every edge; both zeros and minus infinity among them."""
    values = np.array([-np.inf, -2.5, -0.0, 0.0, 1.0, 7.0], np.float32)
    x = np.random.default_rng(size + count).choice(values, (3, size))
    expected = np.argsort(-x, axis=-1, kind="stable")[:, :count]
    largest, indices = ops.read(ops.largest(ops.float32(x), count))
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(largest, np.take_along_axis(x, expected, -1))


@pytest.mark.parametrize("size", [7, 100, 4096, 4100, 150_000, 150_001])
def test_a_row_has_the_same_sum_alone_and_in_a_batch(ops: Ops, size: int) -> None:
    x = np.random.default_rng(3).normal(0, 3, (8, size)).astype(np.float32)
    together = read(ops, ops.row_sum(ops.float32(x)))
    alone = np.concatenate([read(ops, ops.row_sum(ops.float32(x[i : i + 1]))) for i in range(8)])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_allclose(
        together[:, 0], x.sum(-1, dtype=np.float64), atol=5e-6 * np.abs(x).sum(-1).max()
    )


@pytest.mark.parametrize("size", [9, 5000])
def test_a_row_of_bools_sums_to_how_many_are_true(ops: Ops, size: int) -> None:
    x = np.arange(2 * size).reshape(2, size).astype(np.float32)
    assert read(ops, ops.row_sum(ops.float32(x) < size + 3)).tolist() == [[size], [3]]


def test_a_scatter_writes_into_nothing_that_is_not_spare(ops: Ops) -> None:
    x = ops.float32(np.zeros((1, 4), np.float32))
    at, ones = ops.array(np.array([[2]])), ops.float32(np.ones((1, 1), np.float32))
    changed, before = ops.read([ops.scatter(x, at, ones), x])
    assert changed.tolist() == [[0, 0, 1, 0]]
    assert before.tolist() == [[0, 0, 0, 0]]
    assert read(ops, ops.scatter(x, at, ones, spare=True)).tolist() == [[0, 0, 1, 0]]


def test_above(ops: Ops) -> None:
    x = np.array([[-np.inf, -1.0, 0.5, 2.0]], np.float32)
    assert read(ops, ops.above(ops.float32(x), 0.5, -3.0)).tolist() == [[-3.0, -3.0, -3.0, 2.0]]
    assert read(ops, ops.above(ops.float32(x), -3e38, 0.0)).tolist() == [[0.0, -1.0, 0.5, 2.0]]


def test_gather_scatter_take_concat(ops: Ops) -> None:
    x = normal(2, 5)
    indices = np.array([[4, 0], [1, 1]])
    np.testing.assert_array_equal(
        read(ops, ops.gather(ops.float32(x), ops.array(indices))), np.take_along_axis(x, indices, -1)
    )
    before = ops.float32(x)
    changed = read(
        ops, ops.scatter(before, ops.array(np.array([[0], [3]])), ops.float32(np.array([[7.0], [8.0]])))
    )
    expected = x.copy()
    expected[0, 0], expected[1, 3] = 7, 8
    np.testing.assert_array_equal(changed, expected)
    np.testing.assert_array_equal(read(ops, before), x)
    np.testing.assert_array_equal(read(ops, ops.take(ops.float32(x), [1, 0, 1])), x[[1, 0, 1]])
    np.testing.assert_array_equal(
        read(ops, ops.concat([ops.float32(x), ops.float32(x)], 1)), np.concatenate([x, x], 1)
    )


def test_softmaxes_and_row_reductions(ops: Ops) -> None:
    x = np.array([[0.0, 1.0, -np.inf], [700.0, 700.0, 0.0]], np.float32)
    expected = np.array([[1 / (1 + np.e), np.e / (1 + np.e), 0], [0.5, 0.5, 0]])
    np.testing.assert_allclose(read(ops, ops.softmax(ops.float32(x))), expected, atol=1e-6)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(
            read(ops, ops.log_softmax(ops.float32(x)))[0], np.log(expected[0]), atol=1e-6
        )
    np.testing.assert_allclose(read(ops, ops.cumsum(ops.float32(expected))), expected.cumsum(-1), atol=1e-6)
    assert read(ops, ops.row_max(ops.float32(x))).tolist() == [[1.0], [700.0]]


def test_rows_that_are_not_numbers_are_told(ops: Ops) -> None:
    rows = np.array([[0, 1], [np.nan, 1], [np.inf, 1], [-np.inf, 1], [-np.inf, -np.inf]], np.float32)
    assert read(ops, ops.isfinite_row(ops.float32(rows))).tolist() == [True, False, False, True, False]


def test_a_copy_shares_nothing(ops: Ops) -> None:
    x = ops.zeros((1, 1, 2, 2))
    copied = ops.copy(x)
    x[:, :, 0:1] = ops.array(np.ones((1, 1, 1, 2), np.float32))
    assert read(ops, copied).sum() == 0
    assert read(ops, x).sum() == 2


def groups(bits: int) -> QuantizedArray:
    codes = draws.random.integers(0, 2**bits, (16, 64), dtype=np.uint8)
    return QuantizedArray(codes, normal(16, 2) * 0.1, normal(16, 2) * 0.1, bits, 32)


def test_dequantizing_by_hand() -> None:
    array = QuantizedArray(
        np.array([[0, 1, 2, 15]], np.uint8),
        np.array([[0.5, 2.0]]),
        np.array([[-1.0, 1.0]]),
        bits=4,
        group_size=2,
    )
    assert array.dequantize().tolist() == [[-1.0, -0.5, 5.0, 31.0]]


def test_torch_four_bit_kernel_against_dequantized() -> None:
    ops = open_ops("torch", "quantized", 1)
    value = groups(4)
    x = torch.from_numpy(normal(3, 64)).to(torch.bfloat16)
    got = ops.linear(x, ops.weight(value)).float().numpy()
    expected = x.float().numpy() @ value.dequantize().T
    # The kernel keeps scales and sums in bfloat16: 8 bits of mantissa.
    np.testing.assert_allclose(got, expected, rtol=0.02, atol=0.02 * np.abs(expected).max())


def test_a_matrix_that_torchs_kernel_does_not_take_is_dense() -> None:
    """Sixteen rows at once: a vocabulary may have any number of them."""
    ops, whole = open_ops("torch", "quantized", 1), groups(4)
    value = map_rows(whole, lambda rows: rows[:-3])
    x = torch.from_numpy(normal(3, 64)).to(torch.bfloat16)
    got = ops.linear(x, ops.weight(value)).float().numpy()
    expected = x.float().numpy() @ dense(value).T
    np.testing.assert_allclose(got, expected, rtol=0.02, atol=0.02 * np.abs(expected).max())


def test_quantized_experts_are_their_dequantized_matrices() -> None:
    """Through the kernels that take codes: torch's for a CPU, MLX's by index."""
    from tokenline.ops.mlx import MlxOps, PackedWeight, mx

    one, two = groups(4), map_rows(groups(4), lambda rows: rows[::-1].copy())
    x, experts = normal(3, 1, 64), np.array([[0, 1], [1, 0], [1, 1]])
    expected = np.einsum(
        "nck,ncmk->ncm", np.broadcast_to(x, (3, 2, 64)), np.stack([dense(one), dense(two)])[experts]
    )
    bound = 0.02 * np.abs(expected).max()
    ops = open_ops("torch", "quantized", 1)
    said = ops.expert_linear(ops.array(x), ops.expert_weights([one, two]), ops.array(experts))
    np.testing.assert_allclose(read(ops, said), expected, rtol=0.02, atol=bound)
    packed = PackedWeight(stack_rows([one, two]), mx.float32, experts=2)
    said = MlxOps("float32", 1).expert_linear(mx.array(x), packed, mx.array(experts))
    np.testing.assert_allclose(np.array(said), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
def test_mlx_packed_layout_is_its_own_affine_one(bits: int) -> None:
    from tokenline.ops.mlx import MlxOps, PackedWeight, mx

    value = groups(bits)
    packed = PackedWeight(value, mx.float32)
    opened = mx.dequantize(packed.words, packed.scales, packed.biases, group_size=32, bits=bits)
    np.testing.assert_allclose(np.array(opened), value.dequantize(), rtol=1e-6, atol=1e-6)
    ops = MlxOps("float32", 1)
    x = normal(3, 64)
    np.testing.assert_allclose(
        np.array(ops.linear(mx.array(x), packed)), x @ value.dequantize().T, rtol=1e-3, atol=1e-3
    )
    ids = mx.array([[3, 15]])
    np.testing.assert_allclose(
        np.array(ops.embedding(ids, packed))[0], value.dequantize()[[3, 15]], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cuda", "float32", 1), "no backend 'cuda'"),
        (("torch", "int3", 1), "no dtype 'int3'"),
        (("torch", "float32", 0), "0 threads"),
    ],
)
def test_bad_choices_name_the_mend(arguments: tuple, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        open_ops(*arguments)


def test_mlx_computes_with_a_real_blas() -> None:
    from tokenline.ops.mlx import MlxOps

    assert MlxOps("float32", 1).blas in ("torch", "mkl", "platform")


@pytest.mark.parametrize("each", [False, True], ids=["one row for all its experts", "a row for each"])
def test_a_row_is_multiplied_by_its_experts_matrix(ops: Ops, each: bool) -> None:
    """Expert 2 is nobody's, expert 4 everybody's."""
    matrices, bias = normal(5, 6, 8), normal(5, 6)
    experts = np.array([[4, 0], [4, 1], [3, 4], [0, 4]])
    x = normal(4, 2 if each else 1, 8)
    weights = ops.expert_weights(list(matrices))
    assert ops.weight_bytes(weights) == matrices.nbytes
    got = read(ops, ops.expert_linear(ops.array(x), weights, ops.array(experts), ops.array(bias)))
    rows = np.broadcast_to(x, (4, 2, 8))
    expected = np.einsum("nck,ncmk->ncm", rows, matrices[experts]) + bias[experts]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
