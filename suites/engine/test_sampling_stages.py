"""Each stage against engines that are not ours: llama.cpp's samplers, transformers' processors, mlx-lm's functions."""

from __future__ import annotations

from collections.abc import Sequence

import llama_samplers
import numpy as np
import pytest
import torch
import transformers
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

from tokenline.decode.sampling.candidates import Candidates
from tokenline.decode.sampling.temperature import temperature
from tokenline.ops import Ops
from tokenline.request import Sampling

HISTORY = [3, 7, 7, 9, 3, 20, 9, 9]


@pytest.fixture
def ops(backend: str) -> Ops:
    return OPS[backend]


def transformers_says(processors: list, logits: np.ndarray, history: Sequence[int] = ()) -> np.ndarray:
    ids, scores = torch.tensor([list(history)], dtype=torch.long), torch.from_numpy(logits.copy())
    for processor in processors:
        scores = processor(ids, scores)
    return scores[0].numpy()


def llama_says(samplers: list[llama_samplers.Sampler], logits: np.ndarray) -> np.ndarray:
    changed = logits[0]
    for sampler in samplers:
        changed, _ = sampler.apply(changed)
    return changed


@pytest.mark.parametrize("k", [1, 5, 49, 50])
def test_top_k(ops: Ops, k: int) -> None:
    logits = logits_of(1)
    ours = processed(ops, logits, top_k=k)
    same_distribution(ours, transformers_says([transformers.TopKLogitsWarper(k)], logits))
    same_distribution(ours, llama_says([llama_samplers.top_k(k)], logits))


@pytest.mark.parametrize("keep", [1, 6])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 0.999])
def test_top_p(ops: Ops, p: float, keep: int) -> None:
    logits = logits_of(1)
    ours = processed(ops, logits, top_p=p, min_keep=keep)
    theirs = transformers.TopPLogitsWarper(p, min_tokens_to_keep=keep)
    same_distribution(ours, transformers_says([theirs], logits))
    same_distribution(ours, llama_says([llama_samplers.top_p(p, keep)], logits))


@pytest.mark.parametrize("keep", [1, 6])
@pytest.mark.parametrize("p", [0.01, 0.1, 0.6, 1.0])
def test_min_p(ops: Ops, p: float, keep: int) -> None:
    logits = logits_of(1)
    ours = processed(ops, logits, min_p=p, min_keep=keep)
    theirs = transformers.MinPLogitsWarper(p, min_tokens_to_keep=keep)
    same_distribution(ours, transformers_says([theirs], logits))
    same_distribution(ours, llama_says([llama_samplers.min_p(p, keep)], logits))


@pytest.mark.parametrize("keep", [1, 6])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.95])
def test_typical_p(ops: Ops, p: float, keep: int) -> None:
    logits = logits_of(1, spread=1.5)
    ours = processed(ops, logits, typical_p=p, min_keep=keep)
    theirs = transformers.TypicalLogitsWarper(p, min_tokens_to_keep=keep)
    same_distribution(ours, transformers_says([theirs], logits))
    same_distribution(ours, llama_says([llama_samplers.typical(p, keep)], logits))


@pytest.mark.parametrize("spread", [2.0, 6.0])
def test_typical_p_of_a_large_vocabulary(ops: Ops, spread: float) -> None:
    """Where the nearest thousand hold what is kept, and where they do not: transformers sorts them all."""

    def edges(x: np.ndarray) -> list[float]:
        logprobs = log_softmax(x)
        entropy = -(np.exp(logprobs) * logprobs).sum()
        return [edge(x, 0.6, np.argsort(np.abs(-logprobs - entropy)))]

    logits = decided_logits(20_000, spread, edges)
    ours = processed(ops, logits, typical_p=0.6)
    same_distribution(ours, transformers_says([transformers.TypicalLogitsWarper(0.6)], logits))


@pytest.mark.parametrize("n", [0.5, 1.0, 2.5])
def test_top_n_sigma(ops: Ops, n: float) -> None:
    logits = logits_of(1)
    same_distribution(
        processed(ops, logits, top_n_sigma=n), llama_says([llama_samplers.top_n_sigma(n)], logits)
    )


def test_top_n_sigma_is_of_the_logits_that_are_left(ops: Ops) -> None:
    """A banned token is not a logit of minus infinity whose deviation is taken: by hand, in float64."""
    logits, banned = logits_of(1), (2, 5)
    left = np.delete(logits[0].astype(np.float64), banned)
    expected = np.where(logits[0] >= left.max() - left.std(), logits[0], -np.inf)
    expected[list(banned)] = -np.inf
    same_distribution(processed(ops, logits, top_n_sigma=1.0, banned_tokens=banned), expected)


@pytest.mark.parametrize(("threshold", "keep"), [(0.05, 1), (0.1, 1), (0.3, 1), (0.6, 1), (0.05, 49)])
def test_xtc_against_llama(ops: Ops, threshold: float, keep: int) -> None:
    logits = logits_of(1, spread=1.2)
    ours = processed(ops, logits, xtc_probability=1.0, xtc_threshold=threshold, min_keep=keep)
    same_distribution(ours, llama_says([llama_samplers.xtc(1.0, threshold, keep)], logits))


@pytest.mark.parametrize("threshold", [0.05, 0.1, 0.3])
def test_xtc_against_mlx_lm(ops: Ops, threshold: float) -> None:
    from mlx_lm.sample_utils import apply_xtc

    from tokenline.ops.mlx import mx

    logits = logits_of(1, spread=1.2)
    theirs = np.array(apply_xtc(mx.array(logits), 1.0, threshold, []))[0]
    same_distribution(processed(ops, logits, xtc_probability=1.0, xtc_threshold=threshold), theirs)


def test_xtc_comes_as_often_as_asked_and_by_a_coin_of_its_own(ops: Ops) -> None:
    """Of two equal tokens XTC leaves the second; where it does not act, the token is what it is without XTC."""
    logits = np.array([[2.0, 2.0, -4.0, -4.0]], np.float32)
    where = range(400)

    def tokens(**settings: object) -> np.ndarray:
        rows = [row(5, at=at, temperature=1.0, **settings) for at in where]
        return draw(ops, np.repeat(logits, len(rows), 0), rows).tokens

    plain, sometimes = tokens(), tokens(xtc_probability=0.3, xtc_threshold=0.2)
    always = tokens(xtc_probability=1.0, xtc_threshold=0.2)
    assert (plain == 0).sum() > 150
    assert (always == 0).sum() == 0
    acted = (sometimes != plain).sum()
    # It acts on 0.3 of the draws and changes about half of these: 60 ± 5 standard deviations.
    assert 25 < acted < 95
    assert ((sometimes == plain) | (sometimes == always)).all()


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_repetition_penalty(ops: Ops, penalty: float) -> None:
    logits = logits_of(1)
    ours = processed(ops, logits, repetition_penalty=penalty, penalty_window=-1, history=HISTORY)
    processor = transformers.RepetitionPenaltyLogitsProcessor(penalty)
    same_distribution(ours, transformers_says([processor], logits, HISTORY))


@pytest.mark.parametrize("window", [1, 3, 100])
def test_penalties_with_a_window(ops: Ops, window: int) -> None:
    logits = logits_of(1)
    ours = processed(
        ops, logits, repetition_penalty=1.4, frequency_penalty=0.3, presence_penalty=0.7,
        penalty_window=window, history=HISTORY,
    )  # fmt: skip
    theirs = llama_samplers.penalties(50, window, 1.4, 0.3, 0.7).accept(HISTORY)
    same_distribution(ours, llama_says([theirs], logits))


@pytest.mark.parametrize("windows", [(1, 3, 100), (3, 1, 2), (100, 2, 1)])
def test_penalties_with_windows_of_their_own_against_mlx_lm(ops: Ops, windows: tuple[int, int, int]) -> None:
    from mlx_lm.sample_utils import make_logits_processors

    from tokenline.ops.mlx import mx

    logits = logits_of(1)
    theirs = mx.array(logits)
    for processor in make_logits_processors(
        repetition_penalty=1.4,
        repetition_context_size=windows[0],
        presence_penalty=0.7,
        presence_context_size=windows[1],
        frequency_penalty=0.3,
        frequency_context_size=windows[2],
    ):
        theirs = processor(mx.array(HISTORY), theirs)
    ours = processed(
        ops, logits, repetition_penalty=1.4, presence_penalty=0.7, frequency_penalty=0.3,
        penalty_window=windows[0], presence_window=windows[1], frequency_window=windows[2], history=HISTORY,
    )  # fmt: skip
    same_distribution(ours, np.array(theirs)[0])


def test_logit_bias(ops: Ops) -> None:
    logits = logits_of(1)
    biases = {(4,): 100.0, (9,): -2.0}
    processor = transformers.SequenceBiasLogitsProcessor(biases)
    theirs = transformers_says([processor], logits, [0])
    same_distribution(processed(ops, logits, logit_bias={4: 100.0, 9: -2.0}), theirs)


def test_banned_tokens_allowed_tokens_and_the_end_of_sequence(ops: Ops) -> None:
    logits = logits_of(1)
    suppress = transformers.SuppressTokensLogitsProcessor([4, 9, 49], device="cpu")
    theirs = transformers_says([suppress], logits)
    same_distribution(processed(ops, logits, banned_tokens=(4, 9), mask_eos=True, eos=[49]), theirs)
    same_distribution(processed(ops, logits, banned_tokens=(4, 9, 49), eos=[3]), theirs)
    only = transformers.PrefixConstrainedLogitsProcessor(lambda batch, ids: [4, 9, 30], 1)
    theirs = transformers_says([only], logits, [0])
    same_distribution(processed(ops, logits, allowed_tokens=(4, 9, 30)), theirs)


@pytest.mark.parametrize(("span", "exponent"), [(0.0, 1.0), (0.5, 1.0), (0.7, 2.5), (2.0, 0.4)])
@pytest.mark.parametrize("removed", [0, 40])
def test_temperature(ops: Ops, span: float, exponent: float, removed: int) -> None:
    logits = logits_of(1)
    theirs = llama_says([llama_samplers.top_k(50 - removed)], logits)
    left = theirs > -np.inf
    theirs[left] = llama_samplers.temperature(0.8, span, exponent).apply(theirs[left])[0]
    settings = Sampling(temperature=0.8, dynatemp_range=span, dynatemp_exponent=exponent)
    whole = Candidates(ops, ops.float32(logits), 50).first(50 - removed)
    ours = np.full(50, -np.inf, np.float32)
    tempered, ids = ops.read([temperature(whole, [settings]).tempered(), whole.ids])
    ours[ids[0]] = tempered[0]
    same_distribution(np.where(left, log_softmax(ours), -np.inf), theirs)


CHAINS = {
    "llama.cpp": {"top_k": 30, "typical_p": 0.9, "top_p": 0.8, "min_p": 0.02, "top_n_sigma": 2.0},
    "list": {"samplers": ("min_p", "top_p", "top_k"), "min_p": 0.001, "top_p": 0.85, "top_k": 12},
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_against_llama(ops: Ops, chain: str) -> None:
    settings = CHAINS[chain]
    makers = {
        "top_k": llama_samplers.top_k, "top_p": llama_samplers.top_p, "min_p": llama_samplers.min_p,
        "typical_p": llama_samplers.typical,
    }  # fmt: skip
    for _ in range(5):
        logits = logits_of(1, spread=1.5)
        changed = logits[0].copy()
        for stage in Sampling(**settings).order:
            if stage == "top_n_sigma":
                changed, _ = llama_samplers.top_n_sigma(settings[stage]).apply(changed)
            elif stage in settings:
                left = np.flatnonzero(changed > -np.inf)
                cut, _ = makers[stage](settings[stage]).apply(changed[left])
                changed[left] = cut
        same_distribution(processed(ops, logits, **settings), changed)


def test_the_mlx_lm_preset_against_mlx_lm(ops: Ops) -> None:
    from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p, apply_xtc

    from tokenline.ops.mlx import mx

    for _ in range(5):
        logits = logits_of(1, spread=1.5)
        theirs = mx.array(logits) - mx.logsumexp(mx.array(logits), -1, keepdims=True)
        theirs = apply_min_p(apply_top_p(theirs, 0.9), 0.02)
        theirs = apply_top_k(apply_xtc(theirs, 1.0, 0.1, []), 7)
        ours = processed(
            ops,
            logits,
            samplers="mlx-lm",
            top_p=0.9,
            min_p=0.02,
            xtc_probability=1.0,
            xtc_threshold=0.1,
            top_k=7,
        )
        same_distribution(ours, np.array(theirs)[0])


@pytest.mark.parametrize("heat", [0.5, 1.7])
def test_the_vllm_preset_truncates_what_the_temperature_made(ops: Ops, heat: float) -> None:
    """vLLM divides by the temperature, then applies min-p, top-k and top-p (its v1 sampler's documented order)."""
    for _ in range(5):
        logits = logits_of(1, spread=1.5)
        chain = [
            transformers.TemperatureLogitsWarper(heat),
            transformers.MinPLogitsWarper(0.02),
            transformers.TopKLogitsWarper(20),
            transformers.TopPLogitsWarper(0.8),
        ]
        theirs = transformers_says(chain, logits)
        ours = processed(ops, logits, samplers="vllm", temperature=heat, min_p=0.02, top_k=20, top_p=0.8)
        # Reported before temperature: what is left is theirs, how likely it is is the model's.
        same_distribution(ours, np.where(theirs > -np.inf, logits[0], -np.inf))
