"""What the chunked cache has beside `test_forgetful_caches`: boundaries, what is attended to over them, and
mlx-lm's cache as the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_arrays import normal
from forgetful import CHUNKED
from tagged_keys import HEADS, SIZE, keys_of, numbers, push

from tokenline.cache import ChunkedCache
from tokenline.ops import Ops, Precision, open_ops


def test_a_lone_row_is_masked_only_where_a_boundary_cuts(ops: Ops) -> None:
    cache = CHUNKED.filled(ops, 8, numbers(10))
    assert cache.mask(1) is None
    assert cache.mask(6) == "causal"  # to the end of the second chunk
    assert not isinstance(cache.mask(7), str)
    push(ops, cache, [numbers(6)])
    assert cache.mask(1) is None
    assert cache.mask(8) == "causal"
    assert cache.positions(2) == 16


def test_rows_in_step_have_no_mask_and_rows_out_of_step_have(ops: Ops) -> None:
    """Two rows that are a whole chunk apart begin their chunks at the same token; others do not."""
    for shorter, masked in ((12, False), (13, True)):
        batch = CHUNKED.filled(ops, 8, numbers(20))
        batch.extend(CHUNKED.filled(ops, 8, numbers(shorter, 100)))
        assert (batch.mask(1) is not None) == masked


def test_a_rewind_goes_back_over_a_boundary_into_a_whole_chunk(ops: Ops) -> None:
    """At 960 tokens 20 chunks are full; with 16 less, 28 of the chunk before are seen again."""
    tags = numbers(960)
    cache = CHUNKED.filled(ops, 48, tags, piece=100)
    push(ops, cache, [[5000]])
    assert cache.rewind(1 + 20) is True
    assert push(ops, cache, [[6000]])[0] == [[*tags[912:940], 6000]]


def by_definition(q: np.ndarray, k: np.ndarray, v: np.ndarray, chunk: int) -> np.ndarray:
    """Chunked attention of one row in float64, [H, T, D] each, one query after another."""
    said = np.zeros(q.shape, np.float64)
    for position in range(q.shape[1]):
        seen = slice(position // chunk * chunk, position + 1)
        scores = np.einsum("hd,hsd->hs", q[:, position].astype(np.float64), k[:, seen]) / np.sqrt(q.shape[2])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        said[:, position] = np.einsum("hs,hsd->hd", weights / weights.sum(-1, keepdims=True), v[:, seen])
    return said


@pytest.mark.parametrize("bits", [None, 8])
def test_attention_over_it_is_the_definition_in_a_batch_of_unequal_rows(
    backend: str, bits: int | None
) -> None:
    """Both rows are decoded over boundaries of theirs; a key in eight bits moves an answer by a hundredth."""
    ops = open_ops(backend, "float32", 1, Precision(kv_bits=bits))
    lengths, chunk, size, more = (70, 37), 16, 32, 24
    texts = [[normal(HEADS, length + more, size) for _ in "qkv"] for length in lengths]
    expected = [by_definition(*text, chunk) for text in texts]
    batch: ChunkedCache | None = None
    for (_, k, v), length in zip(texts, lengths, strict=True):
        cache = ChunkedCache(ops, chunk, HEADS, size)
        cache.update(ops.array(k[None, :, :length]), ops.array(v[None, :, :length]))
        if batch is None:
            batch = cache
        else:
            batch.extend(cache)
    assert batch is not None
    at = 0
    for tokens in (1, 1, 5, 1, 16):
        q, k, v = (
            np.stack(
                [text[part][:, n + at : n + at + tokens] for text, n in zip(texts, lengths, strict=True)]
            )
            for part in range(3)
        )
        mask = batch.mask(tokens)
        keys, values = batch.update(ops.array(k), ops.array(v))
        [said] = ops.read([ops.attention(ops.array(q), keys, values, mask, size**-0.5)])
        for row, length in enumerate(lengths):
            theirs = expected[row][:, length + at : length + at + tokens]
            np.testing.assert_allclose(said[row], theirs, atol=2e-6 if bits is None else 0.03)
        at += tokens


def test_quantized_storage_is_smaller_and_sees_the_same(backend: str) -> None:
    caches = [
        ChunkedCache(open_ops(backend, "float32", 1, Precision(kv_bits=bits)), 48, HEADS, 64)
        for bits in (None, 8)
    ]
    for size in (300, 1, 60):
        k, v = normal(1, HEADS, size, 64), normal(1, HEADS, size, 64)
        seen = []
        for cache in caches:
            ops = cache._ops
            [keys] = ops.read([cache.update(ops.array(k), ops.array(v))[0]])
            seen.append(keys)
        np.testing.assert_allclose(*seen, atol=0.03)
    assert caches[1].nbytes * 3 < caches[0].nbytes


def theirs_after(chunk: int, pieces: list[int]) -> tuple[object, list[list[list[int]]]]:
    """mlx-lm's cache, trimmed and masked as its Llama 4 does it before every forward, and what each query saw."""
    from tokenline.ops.mlx import mx
    from mlx_lm.models.cache import ChunkedKVCache  # isort: skip

    theirs, at, saw = ChunkedKVCache(chunk), 1, []
    for size in pieces:
        theirs.maybe_trim_front()
        columns = np.arange(theirs.start_position, theirs.offset + size)
        queries = np.arange(theirs.offset, theirs.offset + size)[:, None]
        mask = (columns // chunk == queries // chunk) & (columns <= queries)
        keys = mx.array(keys_of([numbers(size, at)]))
        held = np.array(theirs.update_and_fetch(keys, keys)[0])[0, 0, :, 0].astype(int)
        saw += [held[row].tolist() for row in mask]
        at += size
    return theirs, saw


@pytest.mark.parametrize("chunk", [4, 8, 48, 300])
@pytest.mark.parametrize("pieces", [[1] * 90, [30, 1, 1, 60, 1], [400, 1, 1, 1], [256, 256, 100, 1, 1]])
def test_the_same_tokens_are_seen_as_in_mlx_lms_chunked_cache(chunk: int, pieces: list[int]) -> None:
    ops = open_ops("mlx", "float32", 1)
    cache, at, saw = ChunkedCache(ops, chunk, HEADS, SIZE), 1, []
    for size in pieces:
        [row] = push(ops, cache, [numbers(size, at)])
        saw += row
        at += size
    assert saw == theirs_after(chunk, pieces)[1]


def test_mlx_lms_says_that_it_trimmed_what_it_could_not_and_ours_is_exact(ops: Ops) -> None:
    """After 20 tokens in chunks of 8 its cache holds the last 8. Cut to 14 tokens it should show 8 to 13 to the next
    query, has lost four of them, and says that all 6 were trimmed. Ours has them."""
    theirs, _ = theirs_after(8, [1] * 20)
    theirs.maybe_trim_front()
    assert theirs.trim(6) == 6
    assert theirs.offset == 14
    assert theirs.start_position == 12 > 14 // 8 * 8
    cache = CHUNKED.filled(ops, 8, numbers(20), piece=1)
    assert cache.trim(6) is True
    assert push(ops, cache, [[999]])[0] == [[*numbers(14)[8:], 999]]
