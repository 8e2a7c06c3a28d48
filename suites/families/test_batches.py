"""A row's answer does not depend on who else is there: every family, both backends, and mlx-lm's own batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_oracles import transformers_of
from tiny_checkpoints import MODELS, tokens_of

from paritygate.arms.mlx_lm_model import load_mlx
from tokenline.client import Model, request_of
from tokenline.generation import Generation
from tokenline.row import Event

# A greedy choice is decided where the likeliest token is so much likelier than the next, in nats.
MARGIN = 0.05


def decided(result: dict[str, Any]) -> list[int]:
    """Its tokens up to the first near-tie: after that two correct runs may part."""
    for index, entry in enumerate(result["logprobs"]):
        first, second = (top["logprob"] for top in entry["top_logprobs"][:2])
        if first - second < MARGIN:
            return result["token_ids"][:index]
    return result["token_ids"]


def asked(tokens: list[int]) -> list[dict[str, Any]]:
    """Eight rows: short and long ones, one of more than a piece, penalised ones and ones that draw."""
    cuts = [(0, 20), (20, 21), (0, 270), (30, 90), (100, 110), (60, 200), (5, 9), (150, 190)]
    settings: list[dict[str, Any]] = [{}, {"repetition_penalty": 1.2}, {}, {"temperature": 0.8, "seed": 11}]
    return [
        {"prompt": tokens[start:stop], "max_tokens": 30 - index, "ignore_eos": True, "logprobs": 2}
        | settings[index % len(settings)]
        for index, (start, stop) in enumerate(cuts)
    ]


def run(model: Model, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    def submit() -> list[Any]:
        return [model.submit(request_of(**request)) for request in requests]

    return [generation.result() for generation in model._worker.call(submit).result()]


def test_eight_at_once_are_one_after_another_without_pipelining(
    checkpoint: Path, backend: str, tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"backend": backend, "dtype": "float32", "threads": 1, "cache_bytes": 0}
    requests = asked(tokens)
    with Model(str(checkpoint), parallel=8, prompt_concurrency=3, **options) as model:
        together = run(model, requests)
    monkeypatch.setenv("TOKENLINE_SYNC", "1")
    with Model(str(checkpoint), parallel=1, **options) as model:
        assert not model.manifest["pipelined"]
        alone = run(model, requests)
    assert max(result["counters"]["max_rows"] for result in together) == 8
    assert {result["counters"]["max_rows"] for result in alone} == {1}
    compared = 0
    for request, one, many in zip(requests, alone, together, strict=True):
        # What is drawn by a seed is decided by the seed.
        said = one["token_ids"] if "seed" in request else decided(one)
        assert many["token_ids"][: len(said)] == said
        compared += len(said)
    assert compared >= 40


def mlx_lm_says(
    checkpoint: Path, a: list[int], b: list[int], c: list[int], ends: Sequence[int]
) -> list[list[int]]:
    """mlx-lm's batch generation: a and b, c joins after three steps, and each leaves at its own length."""
    model = load_mlx(checkpoint, threads=1)
    from mlx_lm.generate import BatchGenerator

    generator = BatchGenerator(model, max_tokens=max(ends))
    uids = generator.insert([a, b], max_tokens=list(ends[:2]))
    said: dict[int, list[int]] = {uid: [] for uid in uids}
    while responses := generator.next_generated():
        for response in responses:
            said[response.uid].append(response.token)
        if len(uids) == 2 and len(said[uids[1]]) >= 3:
            [late] = generator.insert([c], max_tokens=[ends[2]])
            uids, said[late] = [*uids, late], []
    generator.close()
    return [said[uid] for uid in uids]


@pytest.mark.parametrize("name", ["llama", "gemma3", "lfm2", "granitemoehybrid"])
def test_a_joins_b_then_c_then_a_leaves_as_in_mlx_lm(name: str, backend: str) -> None:
    """Attention, windows, convolutions and a state space, of families that mlx-lm reads as their authors wrote them."""
    checkpoint = MODELS / name / "checkpoint"
    tokens = tokens_of(checkpoint)
    prompts, ends = (tokens[:60], tokens[10:130], tokens[40:47]), (9, 30, 24)
    theirs = mlx_lm_says(checkpoint, *prompts, ends)
    with Model(str(checkpoint), backend=backend, dtype="float32", threads=1) as model:
        requests = [
            request_of(prompt, max_tokens=end, ignore_eos=True)
            for prompt, end in zip(prompts, ends, strict=True)
        ]
        late: list[Generation] = []

        def join(event: Event) -> None:
            """On the engine's thread, so that nobody has left meanwhile."""
            if event.index == 2:
                late.append(model.submit(requests[2]))

        def begin() -> list[Generation]:
            generations = [model.submit(each) for each in requests[:2]]
            generations[1].subscribe(join)
            return generations

        first, second = model._worker.call(begin).result()
        results = [first.result(), second.result(), late[0].result()]
    assert results[1]["counters"]["max_rows"] == 3
    for prompt, result, said in zip(prompts, results, theirs, strict=True):
        logits = transformers_of(checkpoint).logits([*prompt, *said])[len(prompt) - 1 : -1]
        best = np.sort(logits, axis=-1)
        near = np.flatnonzero(best[:, -1] - best[:, -2] < MARGIN)
        count = int(near[0]) if len(near) else len(said)
        assert count >= 6, "nothing is decided, nothing was compared"
        assert result["token_ids"][:count] == said[:count]
