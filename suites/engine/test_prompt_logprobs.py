"""Log probabilities of the prompt, in process and as an echo, cold and after a prefix hit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
import transformers
from serving import serving

from tokenline.client import Model, request_of

PROMPT = [int(t) for t in np.random.default_rng(5).integers(0, 256, 700)]
TEXT = "Zoë 日本 🎉 said"


def reference(oracle: transformers.LlamaForCausalLM, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return torch.log_softmax(oracle(torch.tensor([tokens])).logits[0].float(), -1).numpy()


def test_against_transformers(tiny: Model, tiny_oracle: transformers.LlamaForCausalLM) -> None:
    """A prompt of several pieces; penalties and a temperature change nothing about the prompt."""
    tiny.reset_cache()
    asked = {"max_tokens": 1, "temperature": 0.5, "repetition_penalty": 1.5, "seed": 1}
    told = tiny.generate(PROMPT, prompt_logprobs=3, **asked)
    first, *entries = told["prompt_logprobs"]
    assert (first["token_id"], first["logprob"], first["top_logprobs"]) == (PROMPT[0], None, [])
    assert [entry["token_id"] for entry in entries] == PROMPT[1:]
    expected = reference(tiny_oracle, PROMPT)[:-1]
    ours = np.array([entry["logprob"] for entry in entries])
    np.testing.assert_allclose(ours, expected[np.arange(699), PROMPT[1:]], atol=2e-3)
    best = np.sort(expected, -1)[:, ::-1][:, :3]
    tops = np.array([[top["logprob"] for top in entry["top_logprobs"]] for entry in entries])
    np.testing.assert_allclose(tops, best, atol=2e-3)
    assert tiny.generate(PROMPT, **asked)["token_ids"] == told["token_ids"]


def test_the_head_runs_over_what_is_asked_for_and_no_more(tiny: Model) -> None:
    tiny.reset_cache()
    plain = tiny.generate(PROMPT, max_tokens=1)
    told = tiny.generate(PROMPT, max_tokens=1, prompt_logprobs=0)
    assert plain["counters"]["head_positions"] == 1
    assert told["counters"]["head_positions"] == 700
    assert all(entry["top_logprobs"] == [] for entry in told["prompt_logprobs"])


def test_after_a_hit_they_are_the_cold_ones_to_the_bit(tiny: Model) -> None:
    """A stored state holds no hidden states, so such a request runs cold, and stores as any other."""
    tiny.reset_cache()
    cold = tiny.generate(PROMPT, max_tokens=4, prompt_logprobs=2)
    hit = tiny.generate(PROMPT, max_tokens=4)
    assert hit["usage"]["cached_tokens"] == 699
    assert hit["token_ids"] == cold["token_ids"]
    again = tiny.generate(PROMPT, max_tokens=4, prompt_logprobs=2)
    assert again["usage"]["cached_tokens"] == 0
    assert again["prompt_logprobs"] == cold["prompt_logprobs"]
    assert again["token_ids"] == cold["token_ids"]


def test_one_token_has_no_token_before_it(tiny: Model) -> None:
    told = tiny.generate([65], max_tokens=1, prompt_logprobs=1)
    assert [entry["logprob"] for entry in told["prompt_logprobs"]] == [None]
    assert told["counters"]["head_positions"] == 1


def test_a_stream_tells_them_once_and_first(tiny: Model) -> None:
    events = list(tiny.submit(request_of(PROMPT[:9], max_tokens=3, prompt_logprobs=1, ignore_eos=True)))
    assert events[0].prompt_logprobs == events[-1].result["prompt_logprobs"]
    assert (events[0].token_id, events[0].text, events[0].result) == (None, "", None)
    assert all(event.prompt_logprobs is None for event in events[1:])
    assert "prompt_logprobs" not in tiny.generate(PROMPT[:9], max_tokens=1)


@pytest.fixture(scope="module")
def client(served_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served_url}/v1", api_key="none", max_retries=0)


def characters_before(tokens: list[bytes]) -> list[int]:
    """Where each token starts, in code points: a token inside a character starts where that does."""
    return [len(b"".join(tokens[:i]).decode(errors="ignore")) for i in range(len(tokens))]


@pytest.mark.parametrize("limit", [0, 5])
def test_an_echo_is_the_prompt_and_its_logprobs(
    client: openai.OpenAI, tiny_torch: Model, tiny_oracle: transformers.LlamaForCausalLM, limit: int
) -> None:
    for _ in range(2):  # cold, then with the prompt's state stored
        answer = client.completions.create(
            model=tiny_torch.name, prompt=TEXT, max_tokens=limit, echo=True, logprobs=2
        )
        [choice] = answer.choices
        ids = tiny_torch.tokenizer.encode(TEXT)
        expected = tiny_torch.generate(ids, max_tokens=limit, logprobs=2)
        assert choice.text == TEXT + expected["text"]
        logprobs = choice.logprobs
        assert logprobs.token_logprobs[0] is None
        assert logprobs.top_logprobs[0] is None
        everything = [*ids, *expected["token_ids"]]
        rows = reference(tiny_oracle, everything)
        wanted = [rows[i, token] for i, token in enumerate(everything[1:])]
        np.testing.assert_allclose(logprobs.token_logprobs[1:], wanted, atol=2e-3)
        spelled = [tiny_torch.tokenizer.token_bytes(token) for token in everything]
        prompt_bytes = len(TEXT.encode())
        assert logprobs.text_offset[:prompt_bytes] == characters_before(spelled)[:prompt_bytes]
        assert len(logprobs.tokens) == len(everything)
        assert answer.usage.completion_tokens == limit


def test_a_streamed_echo_is_the_whole_one(tiny_checkpoint: Path) -> None:
    """One row at a time: which rows share a forward is a matter of time, and moves the last bits of a logprob."""
    asked: dict[str, Any] = {"prompt": [TEXT, "ab"], "max_tokens": 4, "echo": True, "logprobs": 1, "n": 2}
    texts = ["", "", "", ""]
    parts: list[dict[str, list]] = [{} for _ in texts]
    with (
        Model(str(tiny_checkpoint), backend="torch", dtype="float32", threads=1, parallel=1) as alone,
        serving(alone) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client,
    ):
        whole = client.completions.create(model=alone.name, **asked)
        for chunk in client.completions.create(model=alone.name, stream=True, **asked):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                if choice.logprobs is not None:
                    for name, values in choice.logprobs.model_dump().items():
                        parts[choice.index].setdefault(name, []).extend(values)
    assert texts == [choice.text for choice in whole.choices]
    assert parts == [choice.logprobs.model_dump() for choice in whole.choices]


def test_an_echo_without_logprobs_and_of_token_ids(served_url: str, tiny_torch: Model) -> None:
    ids = tiny_torch.tokenizer.encode(TEXT)
    body = {"prompt": ids, "max_tokens": 2, "echo": True, "return_details": True}
    answer = httpx.post(f"{served_url}/v1/completions", json=body, timeout=60).json()["choices"][0]
    assert answer["text"].startswith(TEXT)
    assert answer["logprobs"] is None
    # Nothing was asked of the prompt, so the head did not run over it.
    assert answer["details"]["counters"]["head_positions"] == 2


def test_prompt_logprobs_over_http_are_those_in_process(served_url: str, tiny_torch: Model) -> None:
    body = {"prompt": TEXT, "max_tokens": 2, "prompt_logprobs": 2}
    answer = httpx.post(f"{served_url}/v1/completions", json=body, timeout=60).json()["choices"][0]
    expected = tiny_torch.generate(TEXT, max_tokens=2, prompt_logprobs=2)
    assert answer["prompt_logprobs"] == expected["prompt_logprobs"]
    assert answer["text"] == expected["text"]


def test_bytes_of_all_tokens_join_to_the_text(torch_model: Model) -> None:
    """On a real vocabulary, where one character is several tokens and one token several characters."""
    told = torch_model.generate(TEXT + " 東京タワー", max_tokens=12, prompt_logprobs=20, logprobs=20)
    prompt = b"".join(bytes(entry["bytes"]) for entry in told["prompt_logprobs"])
    assert prompt.decode() == TEXT + " 東京タワー"
    answer = b"".join(bytes(entry["bytes"]) for entry in told["logprobs"])
    assert answer.decode(errors="replace") == told["text"]
    for entry in (*told["prompt_logprobs"][1:], *told["logprobs"]):
        tops = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(tops) == 20
        assert tops == sorted(tops, reverse=True)
        assert entry["logprob"] <= tops[0]
