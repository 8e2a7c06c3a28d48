"""Draws: they follow the distribution, and are a row's own whatever its neighbours ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_rows import (
    OPS,
    decided_logits,
    draw,
    edge,
    log_softmax,
    logits_of,
    processed,
    row,
    same_distribution,
)

from tokenline.decode.sampling import truncation
from tokenline.decode.sampling.draw import uniform
from tokenline.ops import BACKENDS, Ops
from tokenline.request import PRESETS, STAGES


@pytest.fixture
def ops(backend: str) -> Ops:
    return OPS[backend]


EVERYTHING = {
    "temperature": 0.9,
    "dynatemp_range": 0.3,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.01,
    "typical_p": 0.9,
    "top_n_sigma": 3.0,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.05,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.1,
    "dry_multiplier": 0.8,
    "logit_bias": {3: 1.0},
    "banned_tokens": (7,),
}


def test_reported_logprobs_do_not_see_the_temperature(ops: Ops) -> None:
    logits = logits_of(1)
    expected = log_softmax(logits[0])
    for temperature in (0.0, 0.3, 2.0):
        drawn = draw(ops, logits, [row(1, 3, temperature=temperature)])
        assert drawn.logprobs[0, 0] == pytest.approx(expected[drawn.tokens[0]], abs=1e-4)
        assert drawn.alternatives[0].tolist() == np.argsort(-expected)[:3].tolist()


def test_raw_logprobs_see_no_stage_and_processed_ones_all_of_them(ops: Ops) -> None:
    logits = logits_of(2)
    logits[1] = logits[0]
    asked = {"temperature": 1.0, "top_k": 5, "logit_bias": {4: 3.0}}
    drawn = draw(ops, logits, [row(1, 20, raw=True, **asked), row(1, 20, **asked)])
    assert drawn.tokens[0] == drawn.tokens[1]
    raw, biased = log_softmax(logits[0]), logits[0].copy()
    biased[4] += 3
    left = np.where(biased >= np.sort(biased)[-5], biased, -np.inf)
    assert drawn.logprobs[0, 0] == pytest.approx(raw[drawn.tokens[0]], abs=1e-4)
    np.testing.assert_allclose(drawn.logprobs[0, 1:], raw[drawn.alternatives[0]], atol=1e-4)
    np.testing.assert_allclose(drawn.logprobs[1, 1:6], np.sort(log_softmax(left))[::-1][:5], atol=1e-4)
    assert (drawn.logprobs[1, 6:] == -np.inf).all()


def test_greedy_is_the_lowest_of_the_largest_and_truncation_does_not_touch_it(ops: Ops) -> None:
    logits = np.zeros((2, 50), np.float32)
    logits[:, [9, 4, 30]] = 5
    asked = {"xtc_probability": 1.0, "typical_p": 0.2, "top_k": 1}
    assert draw(ops, logits, [row(), row(**asked)]).tokens.tolist() == [4, 4]


def test_top_k_over_the_vocabulary_is_off(ops: Ops) -> None:
    logits = logits_of(1)
    same_distribution(processed(ops, logits, top_k=10_000), processed(ops, logits))


@pytest.mark.parametrize("size", [50, 5000])
def test_of_equal_logits_at_an_edge_the_lower_id_stays(ops: Ops, size: int) -> None:
    logits = np.zeros((1, size), np.float32)

    def left(**settings: object) -> list[int]:
        return np.isfinite(processed(ops, logits, **settings)).nonzero()[0].tolist()

    assert left(top_k=3) == [0, 1, 2]
    assert left(top_p=2.5 / size) == [0, 1, 2]
    assert left(typical_p=2.5 / size) == [0, 1, 2]
    assert left(top_p=0.5 / size, min_keep=4) == [0, 1, 2, 3]
    assert left(min_p=1.0) == list(range(size))
    assert left(xtc_probability=1.0, xtc_threshold=0.9 / size) == [size - 1]


@pytest.mark.parametrize("size", [50, 4000])
@pytest.mark.parametrize("order", [*PRESETS, "own"])
def test_a_mixed_batch_draws_as_each_row_alone(ops: Ops, size: int, order: str) -> None:
    samplers = tuple(reversed(STAGES)) if order == "own" else order
    asked = [
        {},
        {"temperature": 0.7},
        {"temperature": 1.2, "top_k": 5},
        {"temperature": 0.9, "top_p": 0.7, "repetition_penalty": 1.5},
        {"temperature": 1.0, "min_p": 0.1, "logit_bias": {3: 2.0}},
        {"presence_penalty": 1.0},
        EVERYTHING,
        {"temperature": 5.0, "top_p": 0.99},
        {**EVERYTHING, "top_k": 0},
        {"temperature": 1.0, "mirostat": 2, "mirostat_tau": 3.0},
        {"temperature": 1.0, "mirostat": 1, "mirostat_tau": 9.0},
        {"temperature": 1.0, "xtc_probability": 0.5},
    ]
    histories = [[1, 2], [], [5], [7, 7, 8], [], [11], [4, 5, 4, 5, 4], [], [9, 9], [], [], []]
    logits = logits_of(len(asked), size)
    logits[2] = logits[1]
    for at in range(6):
        rows = [
            row(i, i % 3 or None, at=at, history=h, samplers=samplers, **a)
            for i, (a, h) in enumerate(zip(asked, histories, strict=True))
        ]
        together = draw(ops, logits, rows)
        for i, each in enumerate(rows):
            alone = draw(ops, logits[i : i + 1], [each])
            assert together.tokens[i] == alone.tokens[0]
            if alone.logprobs is not None:
                count = (i % 3 or 0) + 1
                np.testing.assert_array_equal(together.logprobs[i, :count], alone.logprobs[0, :count])
            if alone.surprises is not None:
                assert together.surprises[i] == alone.surprises[0]


def test_the_head_of_the_vocabulary_says_what_the_whole_says() -> None:
    """torch on a CPU sorts a head where it is enough; a backend that cannot look sorts everything. Both kinds of
    distribution: nearly all mass in a few tokens, and flat."""
    torch_ops, whole = OPS["torch"], OPS["mlx"]
    chains = (
        {"top_p": 0.9},
        {"top_p": 0.9, "min_p": 0.02, "xtc_probability": 1.0, "xtc_threshold": 0.003},
        {"xtc_probability": 1.0, "xtc_threshold": 0.002, "top_p": 0.8},
        {"top_k": 1000, "top_p": 0.97},
        {"top_k": 3000, "top_p": 0.97},
        {"samplers": "vllm", "temperature": 1.5, "top_p": 0.9},
        {"top_n_sigma": 1.0, "top_p": 0.9},
    )

    def edges(x: np.ndarray) -> Iterator[float]:
        """Of what top-p is given by the stages before it."""
        for mass in (0.8, 0.9):
            yield edge(x, mass)
        for count in (1000, 3000):
            yield edge(np.sort(x)[-count:], 0.97)
        yield edge(x / 1.5, 0.9)
        yield edge(x[x >= x.max() - x.std()], 0.9)

    for spread in (0.1, 1.0, 4.0):
        logits = decided_logits(6000, spread, edges)
        for asked in chains:
            ours, theirs = (processed(ops, logits, **asked) for ops in (torch_ops, whole))
            np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(theirs))
            same_distribution(ours, theirs)


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_the_nearest_say_what_all_say(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """typical-p looks at the nearest thousand where these hold all that it keeps: bit for bit what sorting all gives,
    also beside a row that needs more."""
    logits = logits_of(2, 6000, spread)
    logits[1] = logits_of(1, 6000, 0.05)
    asked = [
        {"typical_p": 0.5},
        {"typical_p": 0.95, "min_keep": 1100},
        {"top_k": 3000, "typical_p": 0.3},
        {"typical_p": 0.6, "top_p": 0.9},
    ]

    def said() -> list[np.ndarray]:
        alone = [processed(OPS["torch"], logits[:1], **each) for each in asked]
        rows = [[row(0, 20, temperature=1.0, **each) for _ in logits] for each in asked]
        together = [draw(OPS["torch"], logits, pair) for pair in rows]
        return [*alone, *(drawn.logprobs for drawn in together), *(drawn.tokens for drawn in together)]

    heads = said()
    monkeypatch.setattr(truncation, "TRIED", ())
    for head, whole in zip(heads, said(), strict=True):
        np.testing.assert_array_equal(head, whole)


def test_rows_that_are_not_numbers_are_marked_and_their_neighbours_are_not(ops: Ops) -> None:
    logits = logits_of(6)
    logits[1, 3], logits[2, :], logits[3, 0] = np.nan, -np.inf, np.inf
    rows = [
        row(temperature=1.0, top_p=0.9), row(), row(temperature=1.0), row(), row(allowed_tokens=(4,)),
        row(allowed_tokens=(4, 5), mask_eos=True, eos=(4, 5)),
    ]  # fmt: skip
    drawn = draw(ops, logits, rows)
    assert drawn.valid.tolist() == [True, False, False, False, True, False]
    assert drawn.tokens[0] == draw(ops, logits[:1], rows[:1]).tokens[0]
    assert drawn.tokens[4] == 4


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"top_k": 8},
        {"top_p": 0.8},
        {"min_p": 0.05},
        {"typical_p": 0.7},
        {"top_n_sigma": 1.5},
        {"samplers": "vllm", "top_p": 0.8},
    ],
)
def test_draws_follow_the_distribution(ops: Ops, asked: dict) -> None:
    """4,000 draws of one row at successive positions; a chi-square of the counts at p = 0.001."""
    from scipy.stats import chisquare

    logits, batch = logits_of(1, 20) / 3, 500
    draws = []
    for start in range(0, 4000, batch):
        rows = [row(42, at=at, temperature=0.8, **asked) for at in range(start, start + batch)]
        draws += draw(ops, np.repeat(logits, batch, 0), rows).tokens.tolist()
    kept = np.isfinite(processed(ops, logits, **{"temperature": 0.8, **asked}))
    scaled = np.where(kept, logits[0].astype(np.float64) / 0.8, -np.inf)
    expected = np.exp(scaled - scaled.max())
    expected *= len(draws) / expected.sum()
    counts = np.bincount(draws, minlength=20)
    assert counts[~kept].sum() == 0
    common = expected >= 5
    observed = [*counts[common], counts[~common].sum()]
    wanted = [*expected[common], expected[~common].sum()]
    if wanted[-1] == 0:
        observed, wanted = observed[:-1], wanted[:-1]
    assert chisquare(observed, wanted).pvalue > 0.001


@pytest.mark.parametrize("stream", [0, 1])
def test_uniforms_are_uniform_and_depend_on_seed_and_position_alone(stream: int) -> None:
    values = np.array([uniform(seed, position, stream) for seed in range(100) for position in range(100)])
    assert values.min() >= 0
    assert values.max() < 1
    assert np.float32(values.max()) < 1
    counts, _ = np.histogram(values, 20, (0, 1))
    assert abs(counts - 500).max() < 5 * math.sqrt(500)
    grid = values.reshape(100, 100)
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.04
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.04
    other = [uniform(seed, position, 1 - stream) for seed in range(100) for position in range(100)]
    assert abs(np.corrcoef(values, other)[0, 1]) < 0.04
    assert len(set(values)) > 9990


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=40),
    st.fixed_dictionaries(
        {"temperature": st.floats(0.0625, 5, width=32)},
        optional={
            "dynatemp_range": st.floats(0, 3, width=32),
            "top_k": st.integers(0, 45),
            "top_p": st.floats(0.015625, 1, width=32),
            "min_p": st.floats(0, 1, width=32),
            "typical_p": st.floats(0.015625, 1, width=32),
            "top_n_sigma": st.floats(0, 4, width=32),
            "min_keep": st.integers(1, 50),
            "xtc_probability": st.floats(0, 1, width=32),
            "xtc_threshold": st.floats(0.001953125, 0.5, width=32),
            "repetition_penalty": st.floats(0.5, 2, width=32),
            "dry_multiplier": st.floats(0, 2, width=32),
        },
    ),
    st.sampled_from(list(PRESETS)) | st.permutations(STAGES).map(tuple),
    st.integers(0, 2**64 - 1),
    st.sampled_from(BACKENDS),
)
def test_whatever_is_asked_the_draw_has_mass_and_the_masses_sum_to_one(
    values: list[float], asked: dict, samplers: str | tuple[str, ...], seed: int, name: str
) -> None:
    logits = np.asarray([values], np.float32)
    drawn = draw(
        OPS[name], logits, [row(seed, len(values), history=[0, 1, 0, 1, 0], samplers=samplers, **asked)]
    )
    assert drawn.valid.all()
    assert np.isfinite(drawn.logprobs[0, 0])
    masses = np.exp(drawn.logprobs[0, 1:].astype(np.float64))
    assert masses.sum() == pytest.approx(1, abs=1e-4)
    assert 0 <= drawn.tokens[0] < len(values)
