"""Penalties see every token before the one that is drawn, on every path: a cache-dependent toy against its definition,
stepped on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from toy_models import Induction, induction_logits, preferences_of, save_induction

from tokenline.client import Model, request_of
from tokenline.decode.sampling import RowParameters
from tokenline.models import FAMILIES

LETTERS = "abcde"
SEEDS = range(1, 7)
TOKENS = 96
PENALTY, WINDOW = 1.3, 3
ASKED = {
    "max_tokens": TOKENS,
    "repetition_penalty": PENALTY,
    "penalty_window": WINDOW,
    "ignore_eos": True,
}


def prompt_of(seed: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(100 + seed).integers(0, len(LETTERS), 23)]


def stepped(seed: int, *, lag: int = 0, penalty: float = PENALTY) -> list[int]:
    """Greedy, step by step: CTRL's penalty over the last three tokens of prompt and answer. `lag` leaves out the latest
    tokens of the answer, as an engine does that draws before it has pushed."""
    preferences = preferences_of(seed, len(LETTERS) + 1)
    prompt = prompt_of(seed)
    tokens = list(prompt)
    for _ in range(TOKENS):
        logits = induction_logits(tokens, preferences)
        known = tokens[: max(len(tokens) - lag, len(prompt))]
        for token in set(known[-WINDOW:]):
            logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


@pytest.fixture(scope="module")
def load(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Model]]:
    directory = tmp_path_factory.mktemp("induction")
    loaded: dict[int, Model] = {}

    def one(seed: int) -> Model:
        if seed not in loaded:
            path = save_induction(directory / str(seed), seed, LETTERS)
            loaded[seed] = Model(str(path), backend=backend, dtype="float32", threads=1)
        return loaded[seed]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "induction", Induction)
        yield one
    for model in loaded.values():
        model.close()


def streamed(model: Model, prompt: Sequence[int]) -> list[int]:
    return [e.token_id for e in model.stream(prompt, **ASKED) if e.token_id is not None]


def in_a_batch(model: Model, prompt: Sequence[int]) -> list[int]:
    """Joins two rows that decode already: one with a history of its own, one with none."""
    neighbours = [
        model.submit(request_of([1, 2, 1, 2, 3], **ASKED)),
        model.submit(request_of([4], max_tokens=TOKENS, ignore_eos=True)),
    ]
    next(iter(neighbours[0]))
    result = model.submit(request_of(prompt, **ASKED)).result()
    assert result["counters"]["max_rows"] == 3
    for each in neighbours:
        each.result()
    return result["token_ids"]


def after_a_hit(model: Model, prompt: Sequence[int]) -> list[int]:
    model.generate(prompt, max_tokens=1)
    result = model.generate(prompt, **ASKED)
    assert result["usage"]["cached_tokens"] == len(prompt) - 1
    return result["token_ids"]


PATHS: dict[str, Callable[[Model, Sequence[int]], list[int]]] = {
    "whole": lambda model, prompt: model.generate(prompt, **ASKED)["token_ids"],
    "streamed": streamed,
    "batch": in_a_batch,
    "hit": after_a_hit,
}


@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "synchronous"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_path_is_the_reference(
    load: Callable[[int], Model], seed: int, path: str, pipelined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(seed)
    monkeypatch.setattr(model._engine, "pipelined", pipelined)
    model.reset_cache()
    assert PATHS[path](model, prompt_of(seed)) == stepped(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_that_lags_says_something_else(seed: int) -> None:
    """Or none of the above could fail."""
    assert stepped(seed, lag=1) != stepped(seed)
    assert stepped(seed, penalty=1.0) != stepped(seed)


def test_an_engine_whose_history_lags_is_found_out(
    load: Callable[[int], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect itself: the draw is submitted before the token is read and pushed."""
    model = load(1)
    model.reset_cache()
    with monkeypatch.context() as patch:
        patch.setattr(RowParameters, "needs_history", False)
        said = model.generate(prompt_of(1), **ASKED)["token_ids"]
    assert said == stepped(1, lag=1)
    assert said != stepped(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_penalties_too(load: Callable[[int], Model], seed: int) -> None:
    model = load(seed)
    asked = {"max_tokens": TOKENS, "ignore_eos": True}
    assert model.generate(prompt_of(seed), **asked)["token_ids"] == stepped(seed, penalty=1.0)


@pytest.mark.parametrize(
    "asked",
    [
        {"dry_multiplier": 2.0, "dry_breakers": ["a"]},
        {"temperature": 1.0, "seed": 3, "mirostat": 2, "mirostat_tau": 1.5},
        {"temperature": 1.0, "seed": 3, "mirostat": 1, "mirostat_tau": 1.5},
        {"temperature": 1.2, "seed": 3, "frequency_penalty": 0.4, "penalty_window": -1, "top_p": 0.9},
    ],
    ids=lambda asked: next(iter(asked)) if "mirostat" not in asked else f"mirostat {asked['mirostat']}",
)
def test_whatever_reads_the_history_says_one_thing(
    load: Callable[[int], Model], asked: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, pipelined or not, after a hit, among others: one stream."""
    model, prompt = load(2), prompt_of(2)
    request = {"max_tokens": 48, "ignore_eos": True, **asked}
    model.reset_cache()
    said = [model.generate(prompt, **request)["token_ids"] for _ in range(2)]
    neighbours = [model.submit(request_of([n], max_tokens=40, ignore_eos=True)) for n in (1, 2)]
    said.append(model.submit(request_of(prompt, **request)).result()["token_ids"])
    for each in neighbours:
        each.result()
    monkeypatch.setattr(model._engine, "pipelined", False)
    said.append(model.generate(prompt, **request)["token_ids"])
    assert all(each == said[0] for each in said)
    assert said[0] != model.generate(prompt, max_tokens=48, ignore_eos=True)["token_ids"]
