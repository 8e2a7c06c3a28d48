"""The server through OpenAI's own client, and against what the same model says in process."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tokenline.client import Model

PROMPT = "Once upon a time"
MESSAGES: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "日本 🎉?"}]


@pytest.fixture(scope="module")
def client(served_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served_url}/v1", api_key="none", max_retries=0)


def test_models(client: openai.OpenAI, tiny_torch: Model) -> None:
    assert [model.id for model in client.models.list()] == [tiny_torch.name]
    assert client.models.retrieve(tiny_torch.name).object == "model"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4o")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "seed": 11}], ids=["greedy", "seeded"])
def test_completion_says_what_the_model_says(client: openai.OpenAI, tiny_torch: Model, sampling: Any) -> None:
    expected = tiny_torch.generate(PROMPT, max_tokens=40, **sampling)
    answer = client.completions.create(model=tiny_torch.name, prompt=PROMPT, max_tokens=40, **sampling)
    assert answer.object == "text_completion"
    [choice] = answer.choices
    assert (choice.index, choice.text, choice.finish_reason) == (
        0,
        expected["text"],
        expected["finish_reason"],
    )
    assert choice.logprobs is None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(PROMPT)
    assert answer.usage.completion_tokens == len(expected["token_ids"])
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == len(PROMPT) - 1


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "seed": 11}], ids=["greedy", "seeded"])
def test_streamed_completion_is_the_whole_one(
    client: openai.OpenAI, tiny_torch: Model, sampling: Any
) -> None:
    expected = tiny_torch.generate(PROMPT, max_tokens=40, logprobs=2, **sampling)
    chunks = list(
        client.completions.create(
            model=tiny_torch.name, prompt=PROMPT, max_tokens=40, stream=True, logprobs=2,
            stream_options={"include_usage": True}, **sampling,
        )
    )  # fmt: skip
    *tokens, last, usage = chunks
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == expected["text"]
    assert [chunk.choices[0].finish_reason for chunk in tokens] == [None] * len(tokens)
    assert last.choices[0].finish_reason == expected["finish_reason"]
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.completion_tokens == len(expected["token_ids"])
    # One event per token, its logprobs with it; the tail that was held back may be one more.
    sent = [chunk for chunk in tokens if chunk.choices[0].logprobs is not None]
    assert len(sent) == len(expected["token_ids"])
    assert len(tokens) - len(sent) <= 1
    whole = client.completions.create(
        model=tiny_torch.name, prompt=PROMPT, max_tokens=40, logprobs=2, **sampling
    )
    logprobs = whole.choices[0].logprobs
    assert logprobs is not None
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [value for chunk in sent for value in getattr(chunk.choices[0].logprobs, name)]
        assert streamed == getattr(logprobs, name)
    assert logprobs.token_logprobs == pytest.approx([entry["logprob"] for entry in expected["logprobs"]])


def test_legacy_logprobs(client: openai.OpenAI, tiny_torch: Model) -> None:
    """A prompt of one text token after another: offsets are code points, parts of characters are spelled in bytes."""
    expected = tiny_torch.generate(PROMPT, max_tokens=60, logprobs=1)
    answer = client.completions.create(model=tiny_torch.name, prompt=PROMPT, max_tokens=60, logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.top_logprobs is not None
    assert logprobs.text_offset is not None
    data = b""
    for entry, token, top, offset in zip(
        expected["logprobs"], logprobs.tokens, logprobs.top_logprobs, logprobs.text_offset, strict=True
    ):
        piece = bytes(entry["bytes"])
        try:
            assert token == piece.decode()
        except UnicodeDecodeError:
            assert token == f"bytes:\\x{piece[0]:02x}"
        assert token in top
        # What is whole before this token: all that Python decodes with the unfinished end left out.
        assert offset <= len(data.decode(errors="replace"))
        assert offset >= len(data.decode(errors="ignore"))
        data += piece
    assert any(token.startswith("bytes:") for token in logprobs.tokens), (
        "the random model spells broken characters"
    )


def test_chat_says_what_the_model_says(client: openai.OpenAI, tiny_torch: Model) -> None:
    expected = tiny_torch.generate(messages=MESSAGES, max_tokens=30, logprobs=3)
    answer = client.chat.completions.create(
        model=tiny_torch.name, messages=MESSAGES, max_completion_tokens=30, logprobs=True, top_logprobs=3
    )
    assert answer.object == "chat.completion"
    [choice] = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == expected["text"]
    assert choice.finish_reason == expected["finish_reason"]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == len(expected["token_ids"])
    for ours, entry in zip(choice.logprobs.content, expected["logprobs"], strict=True):
        assert ours.bytes == list(entry["bytes"])
        assert ours.logprob == pytest.approx(entry["logprob"])
        assert [top.bytes for top in ours.top_logprobs] == [
            list(top["bytes"]) for top in entry["top_logprobs"]
        ]
        assert len(ours.top_logprobs) == 3
    spelled = b"".join(bytes(token.bytes or []) for token in choice.logprobs.content)
    assert spelled.decode(errors="replace") == choice.message.content


def test_streamed_chat_is_the_whole_one(client: openai.OpenAI, tiny_torch: Model) -> None:
    expected = tiny_torch.generate(messages=MESSAGES, max_tokens=30)
    chunks = list(
        client.chat.completions.create(model=tiny_torch.name, messages=MESSAGES, max_tokens=30, stream=True)
    )
    first, *middle, last = chunks
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in middle) == expected["text"]
    assert (last.choices[0].delta.content, last.choices[0].finish_reason) == (None, expected["finish_reason"])
    assert chunks[-1].usage is None


def test_content_in_parts_is_the_same_message(client: openai.OpenAI, tiny_torch: Model) -> None:
    parts: list[Any] = [{"role": "user", "content": [{"type": "text", "text": text} for text in ("a", "b")]}]
    expected = tiny_torch.generate(messages=[{"role": "user", "content": "a\nb"}], max_tokens=5)
    answer = client.chat.completions.create(model=tiny_torch.name, messages=parts, max_tokens=5)
    assert answer.choices[0].message.content == expected["text"]


def test_n_choices_are_n_seeds(client: openai.OpenAI, tiny_torch: Model) -> None:
    alone = [
        tiny_torch.generate(PROMPT, max_tokens=12, temperature=1.0, seed=7 + index)["text"]
        for index in range(3)
    ]
    assert len(set(alone)) == 3
    answer = client.completions.create(
        model=tiny_torch.name, prompt=PROMPT, max_tokens=12, temperature=1.0, seed=7, n=3
    )
    assert [choice.text for choice in answer.choices] == alone
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(PROMPT), 36)
    streamed = ["", "", ""]
    for chunk in client.completions.create(
        model=tiny_torch.name, prompt=PROMPT, max_tokens=12, temperature=1.0, seed=7, n=3, stream=True
    ):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == alone


def test_several_prompts(client: openai.OpenAI, tiny_torch: Model) -> None:
    expected = [tiny_torch.generate(prompt, max_tokens=5)["text"] for prompt in ("ab", "xyz")]
    texts = client.completions.create(model=tiny_torch.name, prompt=["ab", "xyz"], max_tokens=5)
    ids = [tiny_torch.tokenizer.encode(prompt) for prompt in ("ab", "xyz")]
    tokens = client.completions.create(model=tiny_torch.name, prompt=ids, max_tokens=5)
    for answer in (texts, tokens):
        assert [choice.text for choice in answer.choices] == expected
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 5


def test_stop_string(client: openai.OpenAI, tiny_torch: Model) -> None:
    text = tiny_torch.generate(PROMPT, max_tokens=40)["text"]
    stop = text[10:13]
    expected = text[: text.index(stop)]
    for stops in (stop, ["never seen, this", stop]):
        answer = client.completions.create(model=tiny_torch.name, prompt=PROMPT, max_tokens=40, stop=stops)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == (expected, "stop")
        chunks = client.completions.create(
            model=tiny_torch.name, prompt=PROMPT, max_tokens=40, stop=stops, stream=True
        )
        assert "".join(chunk.choices[0].text for chunk in chunks) == expected


def test_details(client: openai.OpenAI, tiny_torch: Model) -> None:
    expected = tiny_torch.generate(PROMPT, max_tokens=4)
    asked: Any = {
        "model": tiny_torch.name,
        "prompt": PROMPT,
        "max_tokens": 4,
        "extra_body": {"return_details": True},
    }
    whole = client.completions.create(**asked).choices[0].to_dict()["details"]
    *_, last = client.completions.create(stream=True, **asked)
    for details in (whole, last.choices[0].to_dict()["details"]):
        assert details["token_ids"] == expected["token_ids"]  # type: ignore[index]
        assert details["prompt_token_ids"] == expected["prompt_token_ids"]  # type: ignore[index]
        assert details["finish_cause"] == expected["finish_cause"]  # type: ignore[index]
        assert details["manifest"]["backend"] == "torch"  # type: ignore[index]
        assert details["counters"]["forwards"] >= 4  # type: ignore[index]
