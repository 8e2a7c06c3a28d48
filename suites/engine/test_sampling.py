"""Stages and draws against references that are not ours: transformers' processors, mlx-lm's sampler, arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenline.decode.sampling import RowParameters, sample, stages
from tokenline.decode.sampling.draw import uniform
from tokenline.ops import BACKENDS, Ops, open_ops
from tokenline.request import Sampling

VOCABULARY = 50
random = np.random.default_rng(11)
OPS = {name: open_ops(name, "float32", 1) for name in BACKENDS}


@pytest.fixture
def ops(backend: str) -> Ops:
    return OPS[backend]


def row(seed: int = 0, top_logprobs: int | None = None, **settings: object) -> RowParameters:
    return RowParameters(Sampling(**settings), seed, top_logprobs)


def logits_of(rows: int, vocabulary: int = VOCABULARY) -> np.ndarray:
    return (random.standard_normal((rows, vocabulary)) * 3).astype(np.float32)


def draw(
    ops: Ops,
    logits: np.ndarray,
    rows: list[RowParameters],
    histories: Sequence[Sequence[int]] | None = None,
    at: int = 0,
) -> list[np.ndarray]:
    drawn = sample(ops, ops.float32(logits), rows, [at] * len(rows), histories or [[]] * len(rows))
    return ops.read(drawn.arrays())


def processed(ops: Ops, logits: np.ndarray, settings: dict, history: list[int] = ()) -> np.ndarray:
    """The distribution that a row draws from, over the whole vocabulary, as its reported logprobs say."""
    size = logits.shape[-1]
    parameters = [RowParameters(Sampling(temperature=1.0, **settings), 0, size)]
    _, _, logprobs, alternatives = draw(ops, logits, parameters, [list(history)])
    full = np.full(size, -np.inf, np.float32)
    full[alternatives[0]] = logprobs[0, 1:]
    return full


def oracle(processors: list, logits: np.ndarray, history: list[int] = ()) -> np.ndarray:
    ids, scores = torch.tensor([list(history)], dtype=torch.long), torch.from_numpy(logits.copy())
    for processor in processors:
        scores = processor(ids, scores)
    return torch.log_softmax(scores, -1)[0].numpy()


def same_distribution(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(theirs))
    kept = np.isfinite(theirs)
    np.testing.assert_allclose(ours[kept], theirs[kept], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [1, 5, 49, 50])
def test_top_k_against_transformers(ops: Ops, k: int) -> None:
    logits = logits_of(1)
    same_distribution(
        processed(ops, logits, {"top_k": k}), oracle([transformers.TopKLogitsWarper(k)], logits)
    )


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 0.999])
def test_top_p_against_transformers(ops: Ops, p: float) -> None:
    logits = logits_of(1)
    same_distribution(
        processed(ops, logits, {"top_p": p}), oracle([transformers.TopPLogitsWarper(p)], logits)
    )


@pytest.mark.parametrize("p", [0.01, 0.1, 0.6, 1.0])
def test_min_p_against_transformers(ops: Ops, p: float) -> None:
    logits = logits_of(1)
    same_distribution(
        processed(ops, logits, {"min_p": p}), oracle([transformers.MinPLogitsWarper(p)], logits)
    )


def test_truncations_in_order_against_transformers(ops: Ops) -> None:
    logits = logits_of(1)
    theirs = [
        transformers.TopKLogitsWarper(20),
        transformers.TopPLogitsWarper(0.8),
        transformers.MinPLogitsWarper(0.05),
    ]
    same_distribution(
        processed(ops, logits, {"top_k": 20, "top_p": 0.8, "min_p": 0.05}), oracle(theirs, logits)
    )


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_repetition_penalty_against_transformers(ops: Ops, penalty: float) -> None:
    logits, history = logits_of(1), [3, 7, 7, 9, 3, 20]
    theirs = oracle([transformers.RepetitionPenaltyLogitsProcessor(penalty)], logits, history)
    same_distribution(
        processed(ops, logits, {"repetition_penalty": penalty, "penalty_window": -1}, history), theirs
    )


@pytest.mark.parametrize("window", [1, 3, 100])
def test_penalties_with_windows_against_mlx_lm(ops: Ops, window: int) -> None:
    from mlx_lm.sample_utils import make_logits_processors

    from tokenline.ops.mlx import mx

    logits, history = logits_of(1), [3, 7, 7, 9, 3, 20, 9, 9]
    theirs = mx.array(logits)
    for processor in make_logits_processors(
        repetition_penalty=1.4,
        repetition_context_size=window,
        presence_penalty=0.7,
        presence_context_size=window,
        frequency_penalty=0.3,
        frequency_context_size=window,
    ):
        theirs = processor(mx.array(history), theirs)
    expected = np.array(theirs - mx.logsumexp(theirs, -1, keepdims=True))[0]
    settings = {
        "repetition_penalty": 1.4,
        "presence_penalty": 0.7,
        "frequency_penalty": 0.3,
        "penalty_window": window,
    }
    same_distribution(processed(ops, logits, settings, history), expected)


def test_logit_bias(ops: Ops) -> None:
    logits = logits_of(1)
    expected = logits[0].copy()
    expected[4] += 100
    expected[9] -= 2
    expected = torch.log_softmax(torch.from_numpy(expected), -1).numpy()
    same_distribution(processed(ops, logits, {"logit_bias": {4: 100.0, 9: -2.0}}), expected)


def test_reported_logprobs_do_not_see_the_temperature(ops: Ops) -> None:
    logits = logits_of(1)
    expected = torch.log_softmax(torch.from_numpy(logits), -1).numpy()[0]
    for temperature in (0.0, 0.3, 2.0):
        token, _, logprobs, alternatives = draw(ops, logits, [row(1, 3, temperature=temperature)])
        assert logprobs[0, 0] == pytest.approx(expected[token[0]], abs=1e-4)
        assert alternatives[0].tolist() == np.argsort(-expected)[:3].tolist()


def test_greedy_is_the_lowest_of_the_largest(ops: Ops) -> None:
    logits = np.zeros((1, VOCABULARY), np.float32)
    logits[0, [9, 4, 30]] = 5
    assert draw(ops, logits, [row()])[0].tolist() == [4]


def test_top_k_over_the_vocabulary_is_off(ops: Ops) -> None:
    logits = logits_of(1)
    same_distribution(processed(ops, logits, {"top_k": 10_000}), processed(ops, logits, {}))


def test_of_equal_logits_at_the_edge_of_top_k_the_lower_id_stays(ops: Ops) -> None:
    logits = np.zeros((1, VOCABULARY), np.float32)
    assert np.isfinite(processed(ops, logits, {"top_k": 3})).nonzero()[0].tolist() == [0, 1, 2]


def test_a_mixed_batch_draws_as_each_row_alone(ops: Ops) -> None:
    rows = [
        row(1),
        row(2, temperature=0.7),
        row(3, temperature=1.2, top_k=5),
        row(4, 2, temperature=0.9, top_p=0.7, repetition_penalty=1.5),
        row(5, temperature=1.0, min_p=0.1, logit_bias={3: 2.0}),
        row(6, 0, presence_penalty=1.0),
    ]
    logits = logits_of(len(rows))
    histories = [[1, 2], [], [5], [7, 7, 8], [], [int(logits[5].argmax())]]
    for at in range(20):
        together = draw(ops, logits, rows, histories, at)[0].tolist()
        alone = [int(draw(ops, logits[i : i + 1], [r], [histories[i]], at)[0][0]) for i, r in enumerate(rows)]
        assert together == alone


def test_rows_that_are_not_numbers_are_marked_and_their_neighbours_are_not(ops: Ops) -> None:
    logits = logits_of(4)
    logits[1, 3], logits[2, :], logits[3, 0] = np.nan, -np.inf, np.inf
    rows = [row(temperature=1.0, top_p=0.9), row(), row(temperature=1.0), row()]
    tokens, valid = draw(ops, logits, rows)
    assert valid.tolist() == [True, False, False, False]
    assert tokens[0] == draw(ops, logits[:1], rows[:1])[0][0]


@pytest.mark.parametrize("settings", [{}, {"top_k": 8}, {"top_p": 0.8}, {"min_p": 0.05}])
def test_draws_follow_the_distribution(ops: Ops, settings: dict) -> None:
    """4,000 draws of one row at successive positions; a chi-square of the counts at p = 0.001."""
    from scipy.stats import chisquare

    logits = logits_of(1, 20) / 3
    draws, batch = [], 500
    parameters = [row(42, temperature=0.8, **settings)] * batch
    for start in range(0, 4000, batch):
        drawn = sample(
            ops,
            ops.float32(np.repeat(logits, batch, 0)),
            parameters,
            range(start, start + batch),
            [[]] * batch,
        )
        draws += ops.read([drawn.tokens])[0].tolist()
    kept = np.isfinite(processed(ops, logits, settings))
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


def test_uniforms_are_uniform_and_depend_on_seed_and_position_alone() -> None:
    values = np.array([uniform(seed, position) for seed in range(100) for position in range(100)])
    assert values.min() >= 0
    assert values.max() < 1
    assert np.float32(values.max()) < 1
    counts, _ = np.histogram(values, 20, (0, 1))
    assert abs(counts - 500).max() < 5 * math.sqrt(500)
    grid = values.reshape(100, 100)
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.04
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.04
    assert uniform(3, 5) == uniform(3, 5)
    assert len(set(values)) > 9990


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=40),
    st.integers(0, 45),
    st.floats(0.015625, 1, width=32),
    st.floats(0, 1, width=32),
    st.floats(0.0625, 5, width=32),
    st.integers(0, 2**64 - 1),
    st.sampled_from(BACKENDS),
)
def test_whatever_is_asked_the_draw_has_mass_and_the_masses_sum_to_one(
    values: list[float], k: int, p: float, floor: float, temperature: float, seed: int, name: str
) -> None:
    logits = np.asarray([values], np.float32)
    parameters = [
        RowParameters(Sampling(temperature=temperature, top_k=k, top_p=p, min_p=floor), seed, len(values))
    ]
    token, valid, logprobs, _ = draw(OPS[name], logits, parameters)
    assert valid.all()
    assert np.isfinite(logprobs[0, 0])
    assert np.exp(logprobs[0, 1:].astype(np.float64)).sum() == pytest.approx(1, abs=1e-4)
    assert 0 <= token[0] < len(values)


def test_stages_leave_rows_alone_at_their_neutral_values(ops: Ops) -> None:
    ordered = ops.float32(-np.sort(-logits_of(2), -1))
    neutral = [row(temperature=1.0), row(temperature=1.0)]
    for stage in (stages.top_k, stages.top_p, stages.min_p, stages.temperature, stages.bias):
        np.testing.assert_array_equal(*ops.read([stage(ops, ordered, neutral), ordered]))
    active = [row(temperature=1.0), row(temperature=1.0, top_k=3, top_p=0.5, min_p=0.2, logit_bias={1: 1.0})]
    for stage in (stages.top_k, stages.top_p, stages.min_p, stages.bias):
        changed, before = ops.read([stage(ops, ordered, active), ordered])
        np.testing.assert_array_equal(changed[0], before[0])
        assert (changed[1] != before[1]).any()
