"""The whole contract of the chunked cache, without a model: every token's key carries the token as a tag.

What must be seen is the definition, written down over a row's own positions: the query at p sees from
floor(p / chunk) * chunk to p.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from drawn_arrays import normal
from tagged_keys import HEADS, SIZE, keys_of, numbers, push

from tokenline.cache import ChunkedCache, WindowCache
from tokenline.cache.dense import GROWTH, capacity
from tokenline.cache.window import UNDO
from tokenline.ops import Ops, Precision, open_ops


def filled(ops: Ops, chunk: int, tags: list[int], piece: int = 10_000) -> ChunkedCache:
    cache = ChunkedCache(ops, chunk, HEADS, SIZE)
    for start in range(0, len(tags), piece):
        push(ops, cache, [tags[start : start + piece]])
    return cache


def must_see(tags: Sequence[int], chunk: int, first: int = 0) -> list[list[int]]:
    """Of each token from the first on: those of its chunk up to itself."""
    return [list(tags[index // chunk * chunk : index + 1]) for index in range(first, len(tags))]


def step(ops: Ops, cache: ChunkedCache, rows: list[list[int]], chunk: int, tags: list[list[int]]) -> None:
    """Appends to the batch and to the plain rows; every row must see its own chunk and nothing else."""
    seen = push(ops, cache, tags)
    for row, more, saw in zip(rows, tags, seen, strict=True):
        row += more
        assert saw == must_see(row, chunk, len(row) - len(more))


@pytest.mark.parametrize("chunk", [1, 5, 48, 300])
@pytest.mark.parametrize("piece", [1, 7, 64, 400])
def test_every_query_sees_its_chunk_whatever_the_pieces(ops: Ops, chunk: int, piece: int) -> None:
    """Pieces shorter and longer than the chunk, that end inside chunks and on their boundaries."""
    tags = numbers(700)
    cache, seen = ChunkedCache(ops, chunk, HEADS, SIZE), []
    for start in range(0, len(tags), piece):
        [row] = push(ops, cache, [tags[start : start + piece]])
        seen += row
    assert seen == must_see(tags, chunk)
    assert cache.length == 700


@pytest.mark.parametrize("chunk", [5, 48, 300])
def test_it_forgets(ops: Ops, chunk: int) -> None:
    """However long the text, no more is held than a chunk, what can be undone and one step of growth."""
    cache = filled(ops, chunk, numbers(3000), piece=100)
    assert cache.nbytes <= 2 * HEADS * SIZE * 4 * capacity(chunk + UNDO + GROWTH)


def test_where_it_lies_depends_on_the_length_alone(ops: Ops) -> None:
    grown = ChunkedCache(ops, 48, HEADS, SIZE)
    for start in range(0, 1000, 50):
        push(ops, grown, [numbers(50, start)])
        at_once, copied = filled(ops, 48, numbers(start + 50, 0)), grown.copy()
        push(ops, at_once, [[999]])
        push(ops, copied, [[999]])
        assert copied.nbytes == at_once.nbytes


def test_a_lone_row_is_masked_only_where_a_boundary_cuts(ops: Ops) -> None:
    cache = filled(ops, 8, numbers(10))
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
        batch = filled(ops, 8, numbers(20))
        batch.extend(filled(ops, 8, numbers(shorter, 100)))
        assert (batch.mask(1) is not None) == masked


@pytest.mark.parametrize("length", [20, 48, 49, 256, 335, 600])
@pytest.mark.parametrize("count", [1, 2, UNDO])
def test_rewind_equals_never_having_stepped(ops: Ops, length: int, count: int) -> None:
    """48 and 49 tokens are rewound to the last and the first place of a chunk of 48, 600 across the boundary at 624."""
    cache = filled(ops, 48, numbers(length - 5))
    push(ops, cache, [numbers(5, length - 4)])
    untouched = cache.copy()
    for tag in range(count):
        push(ops, cache, [[900 + tag]])
    assert cache.rewind(count) is True
    assert cache.length == length
    for tags in ([5000], numbers(60, 6000)):
        assert push(ops, cache, [tags]) == push(ops, untouched, [tags])


def test_a_rewind_goes_back_over_a_boundary_into_a_whole_chunk(ops: Ops) -> None:
    """At 960 tokens 20 chunks are full; with 16 less, 28 of the chunk before are seen again."""
    tags = numbers(960)
    cache = filled(ops, 48, tags, piece=100)
    push(ops, cache, [[5000]])
    assert cache.rewind(1 + 20) is True
    assert push(ops, cache, [[6000]])[0] == [[*tags[912:940], 6000]]


@pytest.mark.parametrize("count", [-1, 400, 999])
def test_a_trim_that_cannot_be_exact_is_refused_and_changes_nothing(ops: Ops, count: int) -> None:
    tags = numbers(600)
    cache = filled(ops, 48, tags)
    held = cache.nbytes
    assert cache.trim(count) is False
    assert cache.rewind(count) is False
    assert (cache.length, cache.nbytes) == (600, held)
    assert push(ops, cache, [[999]])[0] == must_see([*tags, 999], 48)[-1:]


def test_what_a_trim_leaves_is_exact_or_it_is_refused(ops: Ops) -> None:
    tags = numbers(700)
    answers = []
    for count in range(0, 700, 7):
        cache = filled(ops, 48, tags, piece=90)
        answers.append(cache.trim(count))
        kept = tags[: 700 - count] if answers[-1] else tags
        assert push(ops, cache, [[999]])[0] == must_see([*kept, 999], 48)[-1:]
    assert answers[: UNDO // 7 + 1] == [True] * (UNDO // 7 + 1)
    assert not answers[-1]


@pytest.mark.parametrize("chunk", [1, 6, 48, 300])
@pytest.mark.parametrize(
    "lengths", [(3, 9), (9, 3), (40, 400), (400, 40), (700, 2), (2, 700), (300, 310), (256, 512)]
)
def test_rows_of_unequal_length_see_their_own_chunks(ops: Ops, chunk: int, lengths: tuple[int, int]) -> None:
    rows = [numbers(lengths[0]), numbers(lengths[1], 10_000)]
    batch = filled(ops, chunk, rows[0])
    batch.extend(filled(ops, chunk, rows[1]))
    longest = max(lengths)
    assert batch.padding == [longest - lengths[0], longest - lengths[1]]
    positions = batch.positions(1)
    np.testing.assert_array_equal(np.broadcast_to(positions, (2, 1)), [[lengths[0]], [lengths[1]]])
    for index in range(chunk if chunk < 50 else 3):
        step(ops, batch, rows, chunk, [[20_000 + index], [30_000 + index]])
    step(ops, batch, rows, chunk, [numbers(60, 40_000), numbers(60, 50_000)])
    third = numbers(90, 60_000)
    batch.extend(filled(ops, chunk, third, piece=40))
    rows.append(third)
    step(ops, batch, rows, chunk, [[1], [2], [3]])


@pytest.mark.parametrize("chunk", [6, 48, 300])
def test_rows_are_filtered_extracted_and_copied(ops: Ops, chunk: int) -> None:
    rows = [numbers(700), numbers(20, 10_000), numbers(330, 20_000)]
    batch = filled(ops, chunk, rows[0])
    for row in rows[1:]:
        batch.extend(filled(ops, chunk, row))
    step(ops, batch, rows, chunk, [[1], [2], [3]])
    for index in range(3):
        alone, mine = batch.extract(index), list(rows[index])
        assert (alone.length, alone.padding, alone.window) == (len(mine), [0], chunk)
        for tag in range(60):
            step(ops, alone, [mine], chunk, [[40_000 + tag]])
    copied, also = batch.copy(), [list(row) for row in rows]
    step(ops, copied, also, chunk, [[7], [8], [9]])
    batch.filter([2, 1])
    rows = [rows[2], rows[1]]
    assert (batch.length, batch.padding) == (331, [0, 310])
    step(ops, batch, rows, chunk, [[4], [5]])
    batch.filter([1])
    assert (batch.length, batch.padding) == (22, [0])
    step(ops, batch, rows[1:], chunk, [[6]])


def test_a_batch_is_trimmed_no_further_than_every_row_was_kept(ops: Ops) -> None:
    rows = [numbers(700), numbers(620, 10_000), numbers(650, 20_000)]
    batch = filled(ops, 48, rows[0])
    for row in rows[1:]:
        batch.extend(filled(ops, 48, row))
    answers = []
    for count in range(0, 400, 3):
        trimmed, kept = batch.copy(), [list(row) for row in rows]
        answers.append(trimmed.trim(count))
        if answers[-1]:
            kept = [row[: len(row) - count] for row in rows]
        step(ops, trimmed, kept, 48, [[70_000], [70_001], [70_002]])
    assert answers[: UNDO // 3 + 1] == [True] * (UNDO // 3 + 1)
    assert not answers[-1]


def test_a_segment_is_the_whole_state(ops: Ops) -> None:
    """What the prompt cache stores of the last piece is all that the row goes on from."""
    tags = numbers(500)
    first = filled(ops, 48, tags[:256])
    part = first.segment(0)
    whole = filled(ops, 48, tags, piece=256)
    again = whole.segment(256).after([part])
    assert (again.length, again.rows) == (500, 1)
    for tag in range(60):
        assert push(ops, again, [[900 + tag]]) == push(ops, whole, [[900 + tag]])


def test_chunks_and_windows_are_kinds_of_their_own(ops: Ops) -> None:
    """Layers share a mask by the kind of their caches."""
    assert ChunkedCache(ops, 4, 1, 1).kind == ChunkedCache(ops, 4, 1, 1).kind
    assert ChunkedCache(ops, 4, 1, 1).kind != ChunkedCache(ops, 5, 1, 1).kind
    assert ChunkedCache(ops, 4, 1, 1).kind != WindowCache(ops, 4, 1, 1).kind


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
    cache = filled(ops, 8, numbers(20), piece=1)
    assert cache.trim(6) is True
    assert push(ops, cache, [[999]])[0] == [[*numbers(14)[8:], 999]]
