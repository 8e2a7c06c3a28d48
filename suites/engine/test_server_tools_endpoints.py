"""The endpoints beside the answers: texts and tokens, vectors, what the server says of itself."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import tokenizers
import torch
import transformers
from prometheus_client.parser import text_string_to_metric_families
from published import faults
from serving import serving
from speaking import ASK, TOOLS, Speaking

from tokenline.client import Model

TEXT = "Once 日本 🎉"


@pytest.fixture(scope="module")
def http(served_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served_url, timeout=60) as client:
        yield client


def asked(http: httpx.Client, path: str, body: Any) -> Any:
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_tokenize(http: httpx.Client, byte_tokenizer: tokenizers.Tokenizer) -> None:
    ids = byte_tokenizer.encode(TEXT).ids
    assert asked(http, "/tokenize", {"content": TEXT}) == {"tokens": ids}
    marked = TEXT + "<|im_end|>"
    assert asked(http, "/tokenize", {"content": marked})["tokens"] == [*ids, 258]
    plain = asked(http, "/tokenize", {"content": marked, "parse_special": False})["tokens"]
    assert plain == [*ids, *byte_tokenizer.encode("<|").ids, *byte_tokenizer.encode("im_end|>").ids]
    pieces = asked(http, "/tokenize", {"content": "a日<|im_end|>", "with_pieces": True})["tokens"]
    first, *bytes_of_one, last = pieces
    assert first == {"id": byte_tokenizer.token_to_id("a"), "piece": "a"}
    assert [piece["piece"] for piece in bytes_of_one] == [[0xE6], [0x97], [0xA5]]
    assert last == {"id": 258, "piece": "<|im_end|>"}


def test_detokenize(http: httpx.Client, byte_tokenizer: tokenizers.Tokenizer) -> None:
    ids = byte_tokenizer.encode(TEXT).ids
    assert asked(http, "/detokenize", {"tokens": ids}) == {"content": TEXT}
    assert asked(http, "/detokenize", {"tokens": []}) == {"content": ""}


def test_apply_template(
    http: httpx.Client, speaking: Speaking, tiny_checkpoint: Any, spoken_checkpoint: Any
) -> None:
    """The text that transformers renders of the same template."""
    oracle = transformers.AutoTokenizer.from_pretrained(tiny_checkpoint)
    messages = [{"role": "user", "content": "日本 <|im_end|>"}]
    expected = oracle.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert asked(http, "/apply-template", {"messages": messages}) == {"prompt": expected}
    told = asked(
        httpx.Client(base_url=str(speaking.client.base_url).removesuffix("v1/")),
        "/apply-template",
        {"messages": ASK, "tools": TOOLS},
    )
    assert json.dumps(TOOLS[1]) in told["prompt"]


@pytest.fixture(scope="module")
def client(served_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served_url}/v1", api_key="none", max_retries=0)


def vector_of(oracle: transformers.LlamaForCausalLM, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        states = oracle.model(torch.tensor([ids])).last_hidden_state[0].numpy()
    mean = states.astype(np.float64).mean(0)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_an_embedding_is_the_mean_of_transformers_states(
    http: httpx.Client,
    client: openai.OpenAI,
    tiny_torch: Model,
    tiny_oracle: transformers.LlamaForCausalLM,
    byte_tokenizer: tokenizers.Tokenizer,
    encoding: Any,
) -> None:
    """Texts of one token, of several pieces of prefill, and ids."""
    texts = [TEXT, "a", TEXT * 60]
    ids = [byte_tokenizer.encode(text).ids for text in texts]
    assert len(ids[2]) > 512
    expected = [vector_of(tiny_oracle, each) for each in ids]
    for given in (texts, ids):
        answer = client.embeddings.create(model=tiny_torch.name, input=given, encoding_format=encoding)
        assert [each.index for each in answer.data] == [0, 1, 2]
        assert answer.usage.prompt_tokens == sum(map(len, ids))
        for each, vector in zip(answer.data, expected, strict=True):
            data: Any = each.embedding
            found = (
                np.frombuffer(base64.b64decode(data), "<f4") if isinstance(data, str) else np.asarray(data)
            )
            np.testing.assert_allclose(found, vector, atol=2e-6)
    raw = asked(http, "/v1/embeddings", {"input": texts})
    assert faults("openai_chat", "CreateEmbeddingResponse", raw) == []
    assert asked(http, "/v1/embeddings", {"input": "a", "dimensions": 64})["model"] == tiny_torch.name


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": 1}, "content"),
        ("/tokenize", {"content": "\ud800"}, "content"),
        ("/tokenize", {"content": "a", "with_pieces": 1}, "with_pieces"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [259]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/apply-template", {"messages": []}, "messages"),
        ("/apply-template", {"messages": [{"role": "x", "content": ""}]}, "messages[0].role"),
        ("/v1/embeddings", {}, "input"),
        ("/v1/embeddings", {"input": ""}, "input"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": [["a"]]}, "input"),
        ("/v1/embeddings", {"input": [259]}, "input"),
        ("/v1/embeddings", {"input": "a" * 2049}, "input"),
        ("/v1/embeddings", {"input": "\ud800"}, "input"),
        ("/v1/embeddings", {"input": ["a"] * 2049}, "input"),
        ("/v1/embeddings", {"input": "a", "dimensions": 32}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ],
)
def test_a_bad_field_is_named(http: httpx.Client, path: str, body: Any, param: str) -> None:
    content = json.dumps(body).encode()
    response = http.post(path, content=content)
    assert response.status_code == 400, response.text
    assert faults("openai_chat", "ErrorResponse", response.json()) == []
    assert response.json()["error"]["param"] == (None if "\\ud800" in json.dumps(body) else param)


def test_props(http: httpx.Client, tiny_torch: Model) -> None:
    props = http.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert props["default_generation_settings"]["params"]["temperature"] == 0
    assert props["total_slots"] == 4
    assert "<|im_start|>" in props["chat_template"]
    assert (props["bos_token"], props["eos_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert props["manifest"] == json.loads(json.dumps(tiny_torch.manifest))


def test_slots_show_a_row_while_it_runs(http: httpx.Client, served_url: str) -> None:
    assert http.get("/slots").json() == []
    body = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True, "priority": 3}
    with httpx.stream("POST", f"{served_url}/v1/completions", json=body, timeout=60) as response:
        lines = response.iter_lines()  # kept: one that is dropped closes the connection
        next(lines)
        [slot] = http.get("/slots").json()
    assert slot["state"] == "decoding"
    assert (slot["prompt_tokens"], slot["max_tokens"], slot["priority"]) == (4, 1900, 3)
    end = time.monotonic() + 5
    while http.get("/slots").json():
        assert time.monotonic() < end


def test_cache_stats(http: httpx.Client, tiny_torch: Model) -> None:
    http.post("/reset_prompt_cache")
    before = http.get("/v1/cache/stats").json()
    assert (before["entries"], before["bytes"]) == (0, 0)
    for _ in range(2):
        asked(http, "/v1/completions", {"prompt": "Once upon", "max_tokens": 1})
    after = http.get("/v1/cache/stats").json()
    assert after["entries"] > 0
    assert 0 < after["bytes"] <= after["limit_bytes"]
    assert (after["hits"] - before["hits"], after["misses"] - before["misses"]) == (1, 1)


def samples(http: httpx.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    response = http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_metrics_count_what_was_answered(tiny_torch: Model) -> None:
    """A server of its own, as the metrics are its."""
    name = ("model_name", tiny_torch.name)
    tiny_torch.reset_cache()
    with serving(tiny_torch) as url, httpx.Client(base_url=url, timeout=60) as http:
        before = samples(http)
        assert before["vllm:prompt_tokens_total", (name,)] == 0
        assert before["vllm:num_requests_running", (name,)] == 0
        usages = [
            asked(
                http, "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 7, "ignore_eos": True}
            )["usage"]
            for _ in range(2)
        ]
        body = {"prompt": "Once", "max_tokens": 1900, "stream": True, "ignore_eos": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            running = samples(http)
        assert running["vllm:num_requests_running", (name,)] == 1
        assert running["vllm:num_requests_waiting", (name,)] == 0
        assert 0 < running["vllm:kv_cache_usage_perc", (name,)] < 1
        end = time.monotonic() + 5
        aborted = ("vllm:request_success_total", (("finished_reason", "abort"), name))
        while aborted not in (after := samples(http)):
            assert time.monotonic() < end
    assert after[aborted] == 1
    assert after["vllm:request_success_total", (("finished_reason", "length"), name)] == 2
    assert running["vllm:prompt_tokens_total", (name,)] == 32
    assert running["vllm:generation_tokens_total", (name,)] == 14
    assert running["vllm:prefix_cache_queries_total", (name,)] == 32
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert running["vllm:prefix_cache_hits_total", (name,)] == cached == 15
    for histogram, count in (
        ("time_to_first_token_seconds", 2),
        ("e2e_request_latency_seconds", 2),
        ("inter_token_latency_seconds", 12),
        ("request_queue_time_seconds", 2),
    ):
        assert running[f"vllm:{histogram}_count", (name,)] == count
    first = running["vllm:time_to_first_token_seconds_sum", (name,)]
    whole = running["vllm:e2e_request_latency_seconds_sum", (name,)]
    assert 0 < first < whole < 60


def test_models_validate_against_what_is_published(http: httpx.Client) -> None:
    assert faults("openai_chat", "ListModelsResponse", http.get("/v1/models").json()) == []
