"""Mirostat 1 and 2 against llama.cpp's samplers, step by step, and as a row's state in the engine."""

from __future__ import annotations

import llama_samplers
import numpy as np
import pytest
from sampling_rows import OPS, draw, log_softmax, processed, row

from tokenline.client import Model
from tokenline.decode.sampling import mirostat
from tokenline.ops import Ops
from tokenline.request import Sampling

TAU, ETA = 3.0, 0.3


@pytest.fixture
def ops(backend: str) -> Ops:
    return OPS[backend]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("vocabulary", [150, 3000])
def test_each_step_keeps_what_llama_keeps(ops: Ops, version: int, vocabulary: int) -> None:
    """llama.cpp draws its own tokens; from these, and by the paper's rule alone, the bound of the next step follows."""
    random = np.random.default_rng(version)
    settings = Sampling(temperature=1.0, mirostat=version, mirostat_tau=TAU, mirostat_eta=ETA)
    if version == 1:
        theirs = llama_samplers.mirostat(vocabulary, 7, TAU, ETA, mirostat.ESTIMATED_FROM)
    else:
        theirs = llama_samplers.mirostat_2(7, TAU, ETA)
    mu = 2 * TAU
    kept = set()
    for _ in range(40):
        logits = (random.standard_normal((1, vocabulary)) * 2.5).astype(np.float32)
        left, token = theirs.apply(logits[0])
        ours = processed(ops, logits, mirostat=version, mirostat_tau=TAU, mirostat_eta=ETA, mu=mu)
        # An estimate of k may round to either side; a bound is exact but for a tie.
        assert abs(np.isfinite(ours).sum() - np.isfinite(left).sum()) <= (version == 1)
        kept.add(int(np.isfinite(left).sum()))
        surprise = -log_softmax(left)[token] / np.log(2)
        mu -= ETA * (surprise - TAU)
        assert mirostat.following(settings, mu + ETA * (surprise - TAU), surprise) == pytest.approx(mu)
    assert len(kept) > 10


def test_the_surprise_told_is_that_of_the_token_drawn(ops: Ops) -> None:
    logits = np.random.default_rng(3).normal(0, 2, (1, 200)).astype(np.float32)
    asked = {"temperature": 1.0, "mirostat": 2, "mirostat_tau": TAU}
    for at in range(20):
        drawn = draw(ops, logits, [row(9, 0, at=at, mu=4.0, **asked)])
        assert drawn.surprises[0] == pytest.approx(-drawn.logprobs[0, 0] / np.log(2), abs=1e-4)


def test_of_a_vocabulary_too_large_for_a_head_the_bound_still_keeps_all() -> None:
    """20,000 equal logits have a surprise of 14.3 bits each: a bound of 15 keeps them all, one of 14 only the first."""
    ops = OPS["torch"]
    logits = np.zeros((1, 20_000), np.float32)
    asked = {"mirostat": 2, "mirostat_tau": 5.0}
    assert np.isfinite(processed(ops, logits, mu=15.0, **asked)).sum() == 20_000
    assert np.isfinite(processed(ops, logits, mu=14.0, **asked)).nonzero()[0].tolist() == [0]


@pytest.mark.parametrize("version", [1, 2])
def test_a_row_steers_alike_alone_and_among_others(tiny: Model, version: int) -> None:
    prompts = [list(range(5, 25)), list(range(40, 47)), [9]]
    asked = {
        "temperature": 0.9,
        "mirostat": version,
        "mirostat_tau": 3.0,
        "max_tokens": 24,
        "ignore_eos": True,
    }
    alone = [tiny.generate(p, seed=i, **asked)["token_ids"] for i, p in enumerate(prompts)]
    neighbours = [tiny.stream([1, 2, 3], max_tokens=30, ignore_eos=True)]
    next(neighbours[0])
    import tokenline.client

    rows = [tiny.submit(tokenline.client.request_of(p, seed=i, **asked)) for i, p in enumerate(prompts)]
    assert [each.result()["token_ids"] for each in rows] == alone
    for each in neighbours:
        list(each)
    # It steers: another target, another text.
    other = tiny.generate(prompts[0], seed=0, **{**asked, "mirostat_tau": 7.0})
    assert other["token_ids"] != alone[0]
    assert other["manifest"]["sampling"]["mirostat_tau"] == 7.0


def test_the_mean_surprise_of_a_text_is_near_its_target(ops: Ops) -> None:
    """What the paper promises: over many steps the observed surprise averages to tau."""
    random = np.random.default_rng(5)
    logits = (random.standard_normal((300, 1, 400)) * 1.5).astype(np.float32)
    for version in (1, 2):
        settings = {"temperature": 1.0, "mirostat": version, "mirostat_tau": 4.0, "mirostat_eta": 0.1}
        mu, seen = mirostat.initial(Sampling(**settings)), []
        for at, step in enumerate(logits):
            drawn = draw(ops, step, [row(2, at=at, mu=mu, **settings)])
            seen.append(float(drawn.surprises[0]))
            mu = mirostat.following(Sampling(**settings), mu, seen[-1])
        assert np.mean(seen[50:]) == pytest.approx(4.0, abs=0.25)
