"""What the window cache has beside `test_forgetful_caches`: where it is masked and when its layout slides."""

from __future__ import annotations

import numpy as np
import pytest
from forgetful import WINDOW
from tagged_keys import HEADS, SIZE, keys_of, numbers, push

from tokenline.cache import WindowCache
from tokenline.ops import Ops, open_ops


def test_a_lone_row_is_masked_only_where_the_window_cuts(ops: Ops) -> None:
    cache = WINDOW.filled(ops, 5, [1, 2, 3])
    assert cache.mask(1) is None
    assert cache.mask(2) == "causal"
    assert not isinstance(cache.mask(3), str)
    push(ops, cache, [numbers(400)])
    assert cache.mask(1) is None
    assert cache.positions(2) == 403


def test_the_layout_slides_while_decoding_and_is_rewound_across(ops: Ops) -> None:
    tags = numbers(335)
    cache = WINDOW.filled(ops, 48, tags[:-1])
    before = cache.nbytes
    push(ops, cache, [tags[-1:]])
    assert cache.nbytes < before, "it slid at this token: another length would make this test empty"
    assert cache.rewind(1) is True
    assert push(ops, cache, [[999]])[0] == WINDOW.must_see([*tags[:-1], 999], 48)[-1:]


@pytest.mark.parametrize("window", [8, 48, 300])
@pytest.mark.parametrize("pieces", [[1] * 90, [30, 1, 1, 60, 1], [400, 1, 1, 1], [256, 256, 100, 1, 1]])
def test_the_same_tokens_are_seen_as_in_mlx_lms_rotating_cache(window: int, pieces: list[int]) -> None:
    from tokenline.ops.mlx import mx
    from mlx_lm.models.cache import RotatingKVCache  # isort: skip

    ops = open_ops("mlx", "float32", 1)
    cache, theirs = WindowCache(ops, window, HEADS, SIZE), RotatingKVCache(max_size=window)
    at = 1
    for size in pieces:
        tags = numbers(size, at)
        at += size
        mask = theirs.make_mask(size, window_size=window)
        held = np.array(theirs.update_and_fetch(mx.array(keys_of([tags])), mx.array(keys_of([tags])))[0])
        held = held[0, 0, :, 0].astype(int)
        if mask is None:
            mask = np.ones((size, len(held)), bool)
        elif isinstance(mask, str):
            mask = np.tril(np.ones((size, len(held)), bool), len(held) - size)
        seen = [sorted(held[row].tolist()) for row in np.array(mask).reshape(size, len(held))]
        assert push(ops, cache, [tags])[0] == seen
