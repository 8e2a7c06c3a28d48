"""/v1/messages through Anthropic's own client, against what the model says in process and what Anthropic publishes."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest
from published import faults, named_events
from speaking import ARGUMENTS, ASK, SAID, WEATHER, Speaking

from tokenline.client import Model
from tokenline.server.messages.bodies import MessagesBody
from tokenline.server.messages.requests import messages_requests
from tokenline.server.parsing import parse

MESSAGES: list[Any] = [{"role": "user", "content": "日本 🎉?"}]
ANTHROPIC_TOOLS: list[Any] = [
    {"name": "weather", "description": "é <b>", "input_schema": WEATHER["function"]["parameters"]},
    {"name": "stop", "input_schema": {"type": "object"}},
]
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "description": "é <b>",
                                      "parameters": WEATHER["function"]["parameters"]}},
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object"}}},
]  # fmt: skip


@pytest.fixture(scope="module")
def client(served_url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=served_url, api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def spoken_to(speaking: Speaking) -> anthropic.Anthropic:
    url = str(speaking.client.base_url).removesuffix("v1/")
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def published(value: Any, schema: str = "Message") -> None:
    assert faults("anthropic", schema, json.loads(value.to_json())) == []


def test_a_message_says_what_the_model_says(client: anthropic.Anthropic, tiny_torch: Model) -> None:
    system = [{"role": "system", "content": "Be\nbrief."}]
    expected = tiny_torch.generate(messages=[*system, *MESSAGES], max_tokens=30)
    tiny_torch.reset_cache()
    for _ in range(2):
        answer = client.messages.create(
            model=tiny_torch.name, max_tokens=30, messages=MESSAGES,
            system=[{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "brief."}],
        )  # fmt: skip
        [block] = answer.content
        assert block.type == "text"
        assert block.text == expected["text"]
        assert answer.stop_reason == {"stop": "end_turn", "length": "max_tokens"}[expected["finish_reason"]]
        usage = answer.usage
        assert usage.output_tokens == len(expected["token_ids"])
        assert usage.cache_read_input_tokens is not None
        assert usage.input_tokens + usage.cache_read_input_tokens == expected["usage"]["prompt_tokens"]
        published(answer)
    assert usage.cache_read_input_tokens == expected["usage"]["prompt_tokens"] - 1


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.9, "top_k": 20, "top_p": 0.9}], ids=["greedy", "drawn"]
)
def test_streamed_text_is_the_messages(client: anthropic.Anthropic, tiny_torch: Model, sampling: Any) -> None:
    with client.messages.stream(
        model=tiny_torch.name, max_tokens=30, messages=MESSAGES, system="Be brief.", extra_body=sampling
    ) as stream:
        events = list(stream)
        final = stream.get_final_message()
    text = "".join(event.text for event in events if event.type == "text")
    [block] = final.content
    assert block.type == "text"
    assert block.text == text
    if not sampling:
        messages = [{"role": "system", "content": "Be brief."}, *MESSAGES]
        assert text == tiny_torch.generate(messages=messages, max_tokens=30)["text"]
    # What is drawn without a seed may end earlier.
    assert (final.usage.output_tokens == 30) == (final.stop_reason == "max_tokens")
    assert sampling or final.stop_reason == "max_tokens"


def test_the_sequence_of_events(served_url: str, tiny_torch: Model) -> None:
    """As the documentation of the streamed Messages API has it."""
    body = {"model": tiny_torch.name, "max_tokens": 5, "messages": MESSAGES, "stream": True}
    events = named_events(httpx.post(f"{served_url}/v1/messages", json=body).text)
    for event in events:
        if event["type"] != "ping":
            assert faults("anthropic", "MessageStreamEvent", event) == [], event
    kinds = [event["type"] for event in events]
    start, ping, opened, *deltas, closed, delta, stop = kinds
    assert [start, ping, opened] == ["message_start", "ping", "content_block_start"]
    assert set(deltas) == {"content_block_delta"}
    assert [closed, delta, stop] == ["content_block_stop", "message_delta", "message_stop"]
    asked = events[0]["message"]["usage"]["input_tokens"]
    counted = events[-2]["usage"]
    assert counted["input_tokens"] + counted["cache_read_input_tokens"] == asked
    assert counted["output_tokens"] == 5


def test_a_stop_sequence_is_named(client: anthropic.Anthropic, tiny_torch: Model) -> None:
    text = tiny_torch.generate(messages=MESSAGES, max_tokens=40)["text"]
    stop = text[10:13]
    asked: Any = {
        "model": tiny_torch.name,
        "max_tokens": 40,
        "messages": MESSAGES,
        "stop_sequences": ["never, this", stop],
    }
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    for answer in (whole, streamed):
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
        [block] = answer.content
        assert block.type == "text"
        assert block.text == text[: text.index(stop)]


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("streamed", [False, True])
def test_thoughts_words_and_calls_are_blocks(
    spoken_to: anthropic.Anthropic, speaking: Speaking, name: str, streamed: bool
) -> None:
    said, content, reasoning, calls = SAID[name]
    speaking.will_say(said, ASK, tools=TOOLS)
    asked: Any = {"model": speaking.model.name, "max_tokens": 500, "messages": ASK, "tools": ANTHROPIC_TOOLS}
    if streamed:
        with spoken_to.messages.stream(**asked) as stream:
            answer = stream.get_final_message()
    else:
        answer = spoken_to.messages.create(**asked)
    expected: list[Any] = []
    if reasoning is not None:
        expected.append(("thinking", reasoning))
    if content:
        expected.append(("text", content))
    expected += [("tool_use", function, json.loads(arguments)) for function, arguments in calls]
    found: list[Any] = []
    for block in answer.content:
        match block.type:
            case "thinking":
                found.append(("thinking", block.thinking))
            case "text":
                found.append(("text", block.text))
            case "tool_use":
                assert block.id.startswith("call_")
                found.append(("tool_use", block.name, block.input))
    assert found == expected
    assert answer.stop_reason == ("tool_use" if calls else "end_turn")
    if not streamed:
        published(answer)


def test_results_of_tools_come_back(spoken_to: anthropic.Anthropic, speaking: Speaking) -> None:
    """The conversation in Anthropic's words has the prompt of the same in OpenAI's."""
    ours: list[Any] = [
        {"role": "system", "content": "Help."},
        *ASK,
        {"role": "assistant", "content": "Let me look.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}]},
        {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "rain"},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip
    theirs: list[Any] = [
        *ASK,
        {"role": "assistant", "content": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "c1", "name": "weather", "input": json.loads(ARGUMENTS)}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]},
            {"type": "text", "text": "And?"}]},
    ]  # fmt: skip
    speaking.will_say("Wet.", ours, tools=TOOLS)
    expected = speaking.model.generate(messages=ours, tools=TOOLS, max_tokens=100)
    asked: Any = {
        "model": speaking.model.name,
        "messages": theirs,
        "system": "Help.",
        "tools": ANTHROPIC_TOOLS,
    }
    answer = spoken_to.messages.create(max_tokens=100, **asked)
    [block] = answer.content
    assert block.type == "text"
    assert block.text == expected["text"] == "Wet."
    count = spoken_to.messages.count_tokens(**asked)
    assert count.input_tokens == expected["usage"]["prompt_tokens"]
    published(count, "CountMessageTokensResponse")


FORCED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "any": ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    "tool": (
        {"tool_choice": {"type": "tool", "name": "stop"}},
        {"tool_choice": {"type": "function", "function": {"name": "stop"}}},
    ),
    "one": (
        {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        {"tool_choice": "required", "parallel_tool_calls": False},
    ),
    "none": ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
    "schema": (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "boolean"}}}},
        {"json_schema": {"type": "boolean"}},
    ),
}


@pytest.mark.parametrize("name", FORCED)
def test_what_holds_an_answer_is_what_a_request_calls_it(
    spoken_to: anthropic.Anthropic, speaking: Speaking, name: str
) -> None:
    """A script of two calls, and whatever the grammar makes of it."""
    theirs, ours = FORCED[name]
    speaking.will_say(SAID["parallel"][0], ASK, tools=TOOLS)
    free = speaking.model.generate(messages=ASK, tools=TOOLS, max_tokens=300)["message"]
    expected = speaking.model.generate(messages=ASK, tools=TOOLS, max_tokens=300, **ours)["message"]
    assert name == "any" or expected != free
    answer = spoken_to.messages.create(
        model=speaking.model.name, max_tokens=300, messages=ASK, tools=ANTHROPIC_TOOLS, **theirs
    )
    said = {"thinking": "", "text": "", "tool_use": []}
    for block in answer.content:
        match block.type:
            case "thinking":
                said["thinking"] += block.thinking
            case "text":
                said["text"] += block.text
            case "tool_use":
                said["tool_use"].append(block.name)
    assert said["thinking"] == expected.get("reasoning_content", "")
    assert said["text"] == (expected["content"] or "")
    assert said["tool_use"] == [call["function"]["name"] for call in expected.get("tool_calls", [])]


@pytest.mark.parametrize(
    ("thinking", "variables"), [(None, {}), ("adaptive", {}), ("disabled", {"enable_thinking": False})]
)
def test_thinking_is_a_variable_of_the_template(thinking: str | None, variables: dict[str, Any]) -> None:
    """The name that Qwen 3, SmolLM3 and their kin ask for in their templates."""
    body = {"model": "x", **ONE, **({} if thinking is None else {"thinking": {"type": thinking}})}
    [request] = messages_requests(parse(json.dumps(body).encode(), MessagesBody), {})
    assert request.chat_template_kwargs == variables


ONE: dict[str, Any] = {"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"type": "object"}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages[0].role"),
        (user({"type": "image", "source": {}}), "messages[0].content[0]"),
        (user({"type": "text"}), "messages[0].content[0].text"),
        (user(), "messages[0].content"),
        (user({"type": "tool_result", "tool_use_id": "x"}), "messages[0].content[0].tool_use_id"),
        (user({"type": "tool_use", "id": "x", "name": "f", "input": {}}), "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": "a" * 2048}]}, "messages"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"system": 3}, "system"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
        ({"metadata": {"other": 1}}, "metadata.other"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [{**TOOL, "input_schema": {"type": "array"}}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "objct"}}}},
            "output_config.format.schema",
        ),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"mcp_servers": []}, "mcp_servers"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_field_is_named(
    served_url: str, tiny_torch: Model, fields: Any, param: str, stream: bool
) -> None:
    body = {"model": tiny_torch.name, **ONE, **fields, "stream": stream}
    response = httpx.post(f"{served_url}/v1/messages", json=body)
    assert response.status_code == 400
    error = response.json()
    assert faults("anthropic", "ErrorResponse", error) == []
    assert error["error"]["type"] == "invalid_request_error"
    assert error["error"]["message"].startswith(param)


def test_errors_are_the_clients_exceptions(client: anthropic.Anthropic, tiny_torch: Model) -> None:
    with pytest.raises(anthropic.NotFoundError, match="there is no model 'claude-x'"):
        client.messages.create(model="claude-x", **ONE)
    with pytest.raises(anthropic.BadRequestError, match="top_p"):
        client.messages.create(model=tiny_torch.name, extra_body={"top_p": 2}, **ONE)
    with pytest.raises(anthropic.BadRequestError, match="takes no tools"):
        client.messages.create(model=tiny_torch.name, tools=[TOOL], **ONE)  # type: ignore[list-item]
    with pytest.raises(anthropic.NotFoundError, match="not served"):
        client.messages.batches.list()
