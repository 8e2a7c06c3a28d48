"""Every path says the same: against transformers, and a path against another, on both backends.

The tiny checkpoint's weights are random, so its logits are spread and its greedy choices are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from tokenline.client import Model, request_of
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.models import Model as Network
from tokenline.ops import Ops

# max |difference of logits| over the range of the logits; float32 with sums of at most 96 terms.
ENVELOPE = 2e-5

PROMPT = [int(t) for t in np.random.default_rng(5).integers(0, 256, 70)]


def reference(oracle: transformers.LlamaForCausalLM, tokens: Sequence[int]) -> np.ndarray:
    with torch.no_grad():
        return oracle(torch.tensor([list(tokens)])).logits[0].float().numpy()


def greedy_reference(oracle: transformers.LlamaForCausalLM, prompt: Sequence[int], count: int) -> list[int]:
    """Without a cache: every token from one whole forward."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(reference(oracle, tokens)[-1].argmax()))
        if tokens[-1] == 258:
            return tokens[len(prompt) : -1]
    return tokens[len(prompt) :]


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() / np.ptp(theirs) < ENVELOPE


def forward(ops: Ops, network: Network, pieces: Sequence[Sequence[int]]) -> np.ndarray:
    caches = network.new_caches()
    logits = [network.logits(network.hidden(ops.array(np.asarray([piece])), caches)) for piece in pieces]
    return np.concatenate([ops.read([part])[0][0] for part in logits])


def test_teacher_forced_logits_against_transformers(
    tiny: Model, tiny_oracle: transformers.LlamaForCausalLM
) -> None:
    close(tiny.logits(PROMPT), reference(tiny_oracle, PROMPT))


@pytest.mark.parametrize("size", [1, 2, 7, 32, 69])
def test_one_forward_is_token_by_token_is_chunked(
    network: tuple[Ops, Network], tiny_oracle: transformers.LlamaForCausalLM, size: int
) -> None:
    pieces = [PROMPT[p.start : p.stop] for p in PrefillPlan.of(len(PROMPT), size=size).pieces()]
    close(forward(*network, pieces), reference(tiny_oracle, PROMPT))


def test_a_padded_row_of_a_batch_is_the_row_alone(
    network: tuple[Ops, Network], tiny_oracle: transformers.LlamaForCausalLM
) -> None:
    ops, net = network
    prompts = [PROMPT[:30], PROMPT[30:37], PROMPT[40:41]]
    batch = None
    for prompt in prompts:
        caches = net.new_caches()
        net.hidden(ops.array(np.asarray([prompt])), caches)
        if batch is None:
            batch = caches
        else:
            for ours, theirs in zip(batch, caches, strict=True):
                ours.extend(theirs)
    steps = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    said = [
        ops.read([net.logits(net.hidden(ops.array(np.asarray(s)[:, None]), batch))])[0]
        for s in np.transpose(steps)
    ]
    for index, prompt in enumerate(prompts):
        expected = reference(tiny_oracle, [*prompt, *steps[index]])[-3:]
        close(np.stack([step[index, 0] for step in said]), expected)


def test_greedy_text_against_transformers(tiny: Model, tiny_oracle: transformers.LlamaForCausalLM) -> None:
    expected = greedy_reference(tiny_oracle, PROMPT, 40)
    assert tiny.generate(PROMPT, max_tokens=40, ignore_eos=False)["token_ids"] == expected


def test_cold_hit_second_hit_and_hit_after_eviction_are_the_same_bits(tiny: Model) -> None:
    def run() -> dict:
        return tiny.generate(PROMPT, max_tokens=24, logprobs=5, ignore_eos=True)

    tiny.reset_cache()
    cold, hit, second = run(), run(), run()
    tiny.reset_cache()
    again = run()
    assert [r["usage"]["cached_tokens"] for r in (cold, hit, second, again)] == [0, 69, 69, 0]
    for other in (hit, second, again):
        assert other["token_ids"] == cold["token_ids"]
        assert other["logprobs"] == cold["logprobs"]  # exact floats
    assert cold["counters"]["prefill_pieces"] == [[0, 69], [69, 70]]
    assert hit["counters"]["prefill_pieces"] == [[69, 70]]


def test_a_longer_prompt_reuses_whole_pieces_of_a_shorter_one_and_the_other_way(tiny: Model) -> None:
    long = [int(t) for t in np.random.default_rng(6).integers(0, 256, 1300)]
    variants = {
        "long": long,
        "shorter": long[:700],
        "longer": [*long, 1, 2, 3],
        "other end": [*long[:1100], 9, 9],
    }
    cold = {}
    for name, prompt in variants.items():
        tiny.reset_cache()
        cold[name] = tiny.generate(prompt, max_tokens=8, logprobs=3, ignore_eos=True)
    tiny.reset_cache()
    cached = []
    for name in ("long", "shorter", "longer", "other end", "long"):
        hit = tiny.generate(variants[name], max_tokens=8, logprobs=3, ignore_eos=True)
        cached.append(hit["usage"]["cached_tokens"])
        assert hit["token_ids"] == cold[name]["token_ids"]
        assert hit["logprobs"] == cold[name]["logprobs"]
    assert cached == [0, 512, 1280, 1024, 1299]


def test_a_conversation_reuses_its_earlier_messages(tiny: Model) -> None:
    first = [{"role": "user", "content": "one two three"}]
    second = [*first, {"role": "assistant", "content": "four"}, {"role": "user", "content": "five"}]
    tiny.reset_cache()
    cold = tiny.generate(messages=second, max_tokens=8, logprobs=1, ignore_eos=True)
    tiny.reset_cache()
    tiny.generate(messages=first, max_tokens=8, ignore_eos=True)
    hit = tiny.generate(messages=second, max_tokens=8, logprobs=1, ignore_eos=True)
    ends = len("<|im_start|>user\none two three<|im_end|>\n") - len("<|im_start|><|im_end|>") + 2
    assert hit["usage"]["cached_tokens"] == ends
    assert hit["logprobs"] == cold["logprobs"]


def test_the_cache_is_not_read_or_filled_when_a_request_declines(tiny: Model) -> None:
    tiny.reset_cache()
    tiny.generate(PROMPT, max_tokens=1, cache_prompt=False)
    assert tiny.cache_stats()["entries"] == 0
    tiny.generate(PROMPT, max_tokens=1)
    assert tiny.generate(PROMPT, max_tokens=1, cache_prompt=False)["usage"]["cached_tokens"] == 0


def test_alone_joined_late_and_neighbours_left_say_the_same(tiny: Model) -> None:
    prompts = [PROMPT[:20], PROMPT[20:25], PROMPT[25:60], PROMPT[3:9]]
    lengths = [40, 6, 25, 33]
    settings = [
        {},
        {"temperature": 0.8, "seed": 4},
        {"repetition_penalty": 1.3},
        {"temperature": 1.1, "top_k": 9, "seed": 1},
    ]
    requests = [
        request_of(p, max_tokens=n, ignore_eos=True, logprobs=i, **s)
        for i, (p, n, s) in enumerate(zip(prompts, lengths, settings, strict=True))
    ]
    alone = [tiny.submit(r).result() for r in requests]
    assert all(r["counters"]["max_rows"] == 1 for r in alone)
    first = tiny.submit(requests[0])
    events = iter(first)
    for _ in range(3):
        next(events)
    late = [tiny.submit(r) for r in requests[1:]]
    together = [first.result(), *(g.result() for g in late)]
    assert max(r["counters"]["max_rows"] for r in together) >= 3
    for one, many in zip(alone, together, strict=True):
        assert many["token_ids"] == one["token_ids"]
        assert many["text"] == one["text"]
        assert len(many["logprobs"]) == len(many["token_ids"])


def test_a_joiner_starts_from_a_hit_while_others_decode_bit_for_bit(tiny: Model) -> None:
    """Its prompt is read alone, whoever decodes beside it: the first token's logprobs are a cold run's, exactly."""
    long = [int(t) for t in np.random.default_rng(8).integers(0, 256, 600)]
    asked = request_of(long, max_tokens=1, logprobs=5, ignore_eos=True)
    tiny.reset_cache()
    cold = tiny.submit(asked).result()
    for expected in (0, 599, 599):
        if expected == 0:
            tiny.reset_cache()
        neighbours = [tiny.submit(request_of(PROMPT[:n], max_tokens=300, ignore_eos=True)) for n in (9, 20)]
        for neighbour in neighbours:
            next(iter(neighbour))
        joined = tiny.submit(asked).result()
        assert [slot["state"] for slot in tiny.slots()] == ["decoding"] * 2
        for neighbour in neighbours:
            neighbour.cancel()
            neighbour.result()
        assert joined["usage"]["cached_tokens"] == expected
        assert joined["logprobs"] == cold["logprobs"]  # exact floats


def test_synchronous_says_what_pipelined_says(
    tiny: Model, tiny_checkpoint: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENLINE_SYNC", "1")
    settings = [
        {},
        {"repetition_penalty": 1.3, "penalty_window": 3},
        {"temperature": 1.0, "seed": 2, "top_p": 0.9},
    ]
    with Model(str(tiny_checkpoint), backend=backend, dtype="float32", threads=1) as synchronous:
        assert synchronous.manifest["pipelined"] is False
        assert tiny.manifest["pipelined"] is True
        for extra in settings:
            a, b = (m.generate(PROMPT, max_tokens=30, logprobs=2, **extra) for m in (tiny, synchronous))
            assert a["token_ids"] == b["token_ids"]
            assert a["logprobs"] == b["logprobs"]
            assert a["finish_cause"] == b["finish_cause"]


def test_seeded_rows_repeat_and_unseeded_rows_tell_their_seed(tiny: Model) -> None:
    one, two = (
        tiny.generate(PROMPT, max_tokens=20, temperature=1.0, seed=9, ignore_eos=True) for _ in range(2)
    )
    assert one["token_ids"] == two["token_ids"]
    free = tiny.generate(PROMPT, max_tokens=20, temperature=1.0, ignore_eos=True)
    told = free["manifest"]["sampling"]["seed"]
    again = tiny.generate(PROMPT, max_tokens=20, temperature=1.0, seed=told, ignore_eos=True)
    assert again["token_ids"] == free["token_ids"]
    assert free["token_ids"] != one["token_ids"]


def test_penalties_see_the_token_just_sampled(
    tiny: Model, tiny_oracle: transformers.LlamaForCausalLM
) -> None:
    """Step by step on the host, from transformers' logits and the history that is current, window 3."""
    tokens = list(PROMPT)
    for _ in range(48):
        logits = reference(tiny_oracle, tokens)[-1].copy()
        for token in set(tokens[-3:]):
            logits[token] = logits[token] / 1.3 if logits[token] > 0 else logits[token] * 1.3
        tokens.append(int(logits.argmax()))
    ours = tiny.generate(PROMPT, max_tokens=48, repetition_penalty=1.3, penalty_window=3, ignore_eos=True)
    assert ours["token_ids"] == tokens[len(PROMPT) :]


def test_work_is_one_forward_and_one_read_a_token(tiny: Model) -> None:
    tiny.reset_cache()
    r = tiny.generate(PROMPT, max_tokens=16, ignore_eos=True)["counters"]
    assert (r["prefill_forwards"], r["decode_forwards"], r["host_reads"]) == (2, 15, 16)
    assert r["head_positions"] == 16  # the head never runs over the whole prompt


def test_the_forward_is_submitted_before_the_token_is_read(
    tiny_checkpoint: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of submits and reads, with and without a sampler that reads history."""
    for settings, expected in (({}, "forward draw read"), ({"repetition_penalty": 1.2}, "forward read draw")):
        with Model(str(tiny_checkpoint), backend=backend, dtype="float32", threads=1) as model:
            log: list[str] = []

            def logged(function: Callable, word: str, log: list[str] = log) -> Callable:
                def call(*arguments: object) -> object:
                    log.append(word)
                    return function(*arguments)

                return call

            engine = model._engine
            for name, word in (("_forward", "forward"), ("_drawn", "draw"), ("_decide", "read")):
                monkeypatch.setattr(engine, name, logged(getattr(engine, name), word))
            model.generate(PROMPT, max_tokens=4, ignore_eos=True, **settings)
        # The prefill's draw, then three steps with a forward ahead; the fourth token is the last: none follows it.
        assert " ".join(log) == " ".join(["draw", *[expected] * 3, "read"])


def test_two_dtypes_in_one_process(tiny_checkpoint: Path, tiny: Model, backend: str) -> None:
    before = tiny.logits(PROMPT[:8])
    with Model(str(tiny_checkpoint), backend=backend, dtype="bfloat16", threads=1) as half:
        coarse = half.logits(PROMPT[:8])
    assert 1e-4 < np.abs(coarse - before).max() / np.ptp(before) < 0.05
    np.testing.assert_array_equal(tiny.logits(PROMPT[:8]), before)
