"""What holds for every family, on both backends: against the oracles, and a path against another."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from below import Below
from distance import ENVELOPE, apart
from family_oracles import (
    MLX_LM_DIFFERS,
    TRANSFORMERS_DIFFERS,
    Transformers,
    mlx_lm_of,
    transformers_of,
)

from tokenline.client import Model

# A greedy choice is decided where the two likeliest differ by more than this part of the range.
DECIDED = 1e-3


def test_logits_are_transformers(model: Model, tokens: list[int], transformers_logits: np.ndarray) -> None:
    assert apart(model.logits(tokens), transformers_logits) < ENVELOPE


def test_the_oracles_agree(
    checkpoint: Path, family: str, tokens: list[int], transformers_logits: np.ndarray
) -> None:
    distance = apart(mlx_lm_of(checkpoint).logits(tokens), transformers_logits)
    if family in MLX_LM_DIFFERS:
        assert distance > ENVELOPE, f"mlx-lm agrees on {family} now: {MLX_LM_DIFFERS[family]}"
    else:
        assert distance < ENVELOPE


def test_transformers_is_told_otherwise_only_where_it_must_be(
    checkpoint: Path, family: str, tokens: list[int], transformers_logits: np.ndarray
) -> None:
    distance = apart(Transformers(checkpoint).logits(tokens), transformers_logits)
    assert (distance > ENVELOPE) == (family in TRANSFORMERS_DIFFERS)


@pytest.mark.parametrize("size", [1, 7, 64, 200])
def test_one_forward_is_token_by_token_is_chunked(
    model: Model, tokens: list[int], transformers_logits: np.ndarray, size: int
) -> None:
    before = model.teacher_forwards
    assert apart(model.logits(tokens, size=size), transformers_logits) < ENVELOPE
    assert model.teacher_forwards - before == -(-len(tokens) // size)


def test_alone_is_joined_late_is_after_neighbours_left(below: Below, tokens: list[int]) -> None:
    prompts = [tokens[:90], tokens[100:110], tokens[120:121], tokens[60:260]]
    follow = tokens[280:290]
    alone = [below.steps(below.filled(prompt), [[token] for token in follow])[:, 0] for prompt in prompts]
    scale = float(np.ptp(alone[0]))

    def close(ours: np.ndarray, row: int, start: int) -> None:
        assert np.abs(ours - alone[row][start : start + len(ours)]).max() / scale < ENVELOPE

    batch = below.filled(prompts[0])
    first = below.steps(batch, [[token] for token in follow[:2]])
    close(first[:, 0], 0, 0)
    for prompt in prompts[1:]:
        joiner = below.filled(prompt)
        below.steps(joiner, [[token] for token in follow[:2]])
        for ours, theirs in zip(batch, joiner, strict=True):
            ours.extend(theirs)
    together = below.steps(batch, [[token] * 4 for token in follow[2:6]])
    for row in range(4):
        close(together[:, row], row, 2)
    for cache in batch:
        cache.filter([1, 2])
    left = below.steps(batch, [[token] * 2 for token in follow[6:8]])
    close(left[:, 0], 1, 6)
    close(left[:, 1], 2, 6)
    extracted = [cache.extract(1) for cache in batch]
    close(below.steps(extracted, [[token] for token in follow[8:]])[:, 0], 2, 8)


def test_a_rewound_state_is_one_that_never_stepped(below: Below, tokens: list[int]) -> None:
    caches = below.filled(tokens[:200])
    untouched = [cache.copy() for cache in caches]
    below.steps(caches, [[tokens[0]], [tokens[1]]])
    assert all(cache.rewind(2) for cache in caches)
    columns = [[token] for token in tokens[250:256]]
    assert np.array_equal(below.steps(caches, columns), below.steps(untouched, columns))


def test_a_step_that_failed_half_way_is_undone(below: Below, tokens: list[int]) -> None:
    """Whatever block a forward came to, every layer goes back to what it held before."""
    caches = below.filled(tokens[:200])
    columns = [[token] for token in tokens[250:254]]
    expected = below.steps([cache.copy() for cache in caches], columns)
    ids = below.ops.array(np.asarray([[tokens[0]]]))
    blocks = len(list(below.network.blocks(ids, [cache.copy() for cache in caches])))
    for stop in (1, blocks // 2, blocks):
        for _ in itertools.islice(below.network.blocks(ids, caches), stop):
            pass
        assert all(cache.return_to(200) for cache in caches)
    assert np.array_equal(below.steps(caches, columns), expected)


def test_projected_bytes_are_what_a_row_takes(below: Below, tokens: list[int]) -> None:
    """The most that was held after any piece on the way; 3 pieces fill what a recurrent layer can undo."""
    caches = below.network.new_caches()
    pieces = [
        *([token] for token in tokens[:3]),
        tokens[:250],
        tokens[:3],
        tokens[:1],
        tokens[:255],
        tokens[:250],
    ]
    held, most = 0, [0] * len(caches)
    for index, piece in enumerate(pieces):
        below.network.hidden(below.ops.array(np.asarray([piece])), caches)
        held += len(piece)
        most = [max(pair) for pair in zip(most, (cache.nbytes for cache in caches), strict=True)]
        if index >= 2:
            assert [cache.projected_bytes(held) for cache in caches] == most
    joiner = below.filled(tokens[:40])
    for ours, theirs in zip(caches, joiner, strict=True):
        ours.extend(theirs)
    for _ in range(3):
        below.steps(caches, [[1, 2]])
    batch = [2 * cache.projected_bytes(held + 3) for cache in caches]
    assert all(cache.nbytes <= projected for cache, projected in zip(caches, batch, strict=True))
    assert sum(cache.nbytes for cache in caches) >= sum(batch) // 2


def test_a_copy_shares_nothing(below: Below, tokens: list[int]) -> None:
    caches = below.filled(tokens[:50])
    copies = [cache.copy() for cache in caches]
    columns = [[token] for token in tokens[250:254]]
    expected = below.steps(caches, columns)
    assert np.array_equal(below.steps(copies, columns), expected)


def answer(model: Model, prompt: list[int]) -> dict[str, Any]:
    return model.generate(prompt, max_tokens=12, logprobs=3, ignore_eos=True)


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["token_ids"] == other["token_ids"]
    assert one["logprobs"] == other["logprobs"]  # exact floats


def test_a_hit_says_what_a_cold_run_says_bit_for_bit(model: Model, tokens: list[int]) -> None:
    long, short, changed = tokens, tokens[:130], [*tokens[:280], *tokens[:20]]
    cold = {}
    for name, prompt in (("long", long), ("short", short), ("changed", changed)):
        model.reset_cache()
        cold[name] = answer(model, prompt)
    model.reset_cache()
    same(answer(model, long), cold["long"])
    hit = answer(model, long)
    assert hit["usage"]["cached_tokens"] == len(long) - 1
    same(hit, cold["long"])
    same(answer(model, short), cold["short"])
    moved = answer(model, changed)
    assert moved["usage"]["cached_tokens"] == 256
    same(moved, cold["changed"])
    same(answer(model, long), cold["long"])


def test_greedy_ids_are_the_oracles_where_they_are_decided(
    model: Model, checkpoint: Path, tokens: list[int]
) -> None:
    prompt = tokens[:24]
    said = model.generate(prompt, max_tokens=40, ignore_eos=True)["token_ids"]
    assert len(said) == 40
    theirs = transformers_of(checkpoint).logits([*prompt, *said])[len(prompt) - 1 : -1]
    best = np.sort(theirs, axis=-1)
    decided = best[:, -1] - best[:, -2] > DECIDED * np.ptp(theirs)
    assert decided.sum() >= 36
    assert (theirs.argmax(-1) == np.asarray(said))[decided].all()
