"""/v1/responses through OpenAI's own client, against what the model says in process and what is published of it."""

from __future__ import annotations

import json
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest
from llm_comply.schema import SSE_EVENT_TO_SCHEMA
from published import faults, named_events
from speaking import ARGUMENTS, ASK, SAID, TOOLS, WEATHER, Speaking

from tokenline.client import Model

MESSAGES: list[Any] = [{"role": "user", "content": "日本 🎉?"}]
FLAT_TOOLS: list[Any] = [
    {"type": "function", "strict": None, "parameters": None, **tool["function"]} for tool in TOOLS
]


@pytest.fixture(scope="module")
def client(served_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served_url}/v1", api_key="none", max_retries=0)


def published(value: Any) -> None:
    plain = json.loads(value.to_json())
    assert faults("openresponses", "ResponseResource", plain) == []
    assert faults("openai_chat", "Response", plain) == []


def test_a_response_says_what_the_model_says(client: openai.OpenAI, tiny_torch: Model) -> None:
    expected = tiny_torch.generate(
        messages=[{"role": "system", "content": "Be brief."}, *MESSAGES], max_tokens=30
    )
    tiny_torch.reset_cache()
    for given in (MESSAGES[0]["content"], MESSAGES):
        answer = client.responses.create(
            model=tiny_torch.name, input=given, instructions="Be brief.", max_output_tokens=30
        )
        assert answer.output_text == expected["text"]
        assert answer.status == "incomplete"
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"
        assert answer.usage is not None
        assert answer.usage.input_tokens == expected["usage"]["prompt_tokens"]
        assert answer.usage.output_tokens == 30
        published(answer)
    assert answer.usage.input_tokens_details.cached_tokens == expected["usage"]["prompt_tokens"] - 1


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("streamed", [False, True])
def test_thoughts_words_and_calls_are_items(speaking: Speaking, name: str, streamed: bool) -> None:
    said, content, reasoning, calls = SAID[name]
    speaking.will_say(said, ASK, tools=TOOLS)
    asked: Any = {"model": speaking.model.name, "input": ASK, "tools": FLAT_TOOLS}
    if streamed:
        with speaking.client.responses.stream(**asked) as stream:
            kinds = [event.type for event in stream]
            answer: Any = stream.get_final_response()
        assert kinds[:2] == ["response.created", "response.in_progress"]
    else:
        answer = speaking.client.responses.create(**asked)
        published(answer)
    expected: list[Any] = []
    if reasoning is not None:
        expected.append(("reasoning", reasoning))
    if content:
        expected.append(("message", content))
    expected += [("function_call", function, arguments) for function, arguments in calls]
    found: list[Any] = []
    for item in answer.output:
        assert item.status == "completed"
        match item.type:
            case "reasoning":
                found.append(("reasoning", item.content[0].text))
            case "message":
                found.append(("message", item.content[0].text))
            case "function_call":
                assert item.call_id.startswith("call_")
                found.append(("function_call", item.name, item.arguments))
    assert found == expected
    assert answer.status == "completed"
    assert answer.usage is not None
    thought = answer.usage.output_tokens_details.reasoning_tokens
    # One token for a character, the marks of thoughts among them; the last comes with what follows.
    assert (thought > 0) == (reasoning is not None)
    if name == "thoughts":
        assert thought == len("<think>\nRain? 日本\n</think>\n\n".encode())


def test_the_sequence_of_events(served_url: str, tiny_torch: Model) -> None:
    body = {"model": tiny_torch.name, "input": MESSAGES, "max_output_tokens": 5, "stream": True}
    events = named_events(httpx.post(f"{served_url}/v1/responses", json=body).text)
    for event in events:
        assert faults("openresponses", SSE_EVENT_TO_SCHEMA[event["type"]], event) == [], event
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"].removeprefix("response.") for event in events]
    deltas = kinds.count("output_text.delta")
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * deltas,
        "output_text.done", "content_part.done", "output_item.done", "incomplete",
    ]  # fmt: skip
    text = "".join(event["delta"] for event in events if "delta" in event)
    assert text == events[-1]["response"]["output"][0]["content"][0]["text"]
    assert text == tiny_torch.generate(messages=MESSAGES, max_tokens=5)["text"]


def test_the_events_of_a_call(speaking: Speaking) -> None:
    speaking.will_say(SAID["call"][0], ASK, tools=TOOLS)
    stream = speaking.client.responses.create(
        model=speaking.model.name, input=ASK, tools=FLAT_TOOLS, stream=True
    )
    kinds = [event.type.removeprefix("response.") for event in stream]
    assert kinds[2] == "output_item.added"
    assert set(kinds[3:-3]) == {"function_call_arguments.delta"}
    assert kinds[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]


def test_a_conversation_with_calls_comes_back(speaking: Speaking) -> None:
    """The items have the prompt of the same conversation in messages."""
    messages: list[Any] = [
        *ASK,
        {"role": "assistant", "content": "Let me look.", "reasoning_content": "Rain?", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}]},
        {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "rain"},
    ]  # fmt: skip
    items: list[Any] = [
        *ASK,
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Rain?"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "Let me look.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": ARGUMENTS, "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
    ]  # fmt: skip
    speaking.will_say("Wet.", messages, tools=TOOLS)
    expected = speaking.model.generate(messages=messages, tools=TOOLS, max_tokens=50)
    answer = speaking.client.responses.create(
        model=speaking.model.name, input=items, tools=FLAT_TOOLS, max_output_tokens=50
    )
    assert answer.output_text == expected["text"] == "Wet."
    assert answer.usage is not None
    assert answer.usage.input_tokens == expected["usage"]["prompt_tokens"]


class Verdict(pydantic.BaseModel):
    wet: Literal[True]


def test_an_answer_parsed_into_a_class(client: openai.OpenAI, tiny_torch: Model) -> None:
    """A random model, held to the schema."""
    parsed = client.responses.parse(
        model=tiny_torch.name, input="Rain?", text_format=Verdict, max_output_tokens=200
    )
    assert parsed.output_parsed is not None
    assert parsed.output_parsed.wet is True
    plain = json.loads(parsed.to_json())
    assert faults("openai_chat", "Response", plain) == []
    anything = client.responses.create(
        model=tiny_torch.name, input="Rain?", text={"format": {"type": "json_object"}}, max_output_tokens=5
    )
    assert anything.output_text.startswith("{")


@pytest.mark.parametrize(
    ("choice", "ours"),
    [
        ("required", "required"),
        ("none", "none"),
        ({"type": "function", "name": "stop"}, {"type": "function", "function": {"name": "stop"}}),
    ],
)
def test_a_choice_of_tools(speaking: Speaking, choice: Any, ours: Any) -> None:
    speaking.will_say(SAID["call"][0], ASK, tools=TOOLS)
    expected = speaking.model.generate(messages=ASK, tools=TOOLS, max_tokens=200, tool_choice=ours)["message"]
    answer = speaking.client.responses.create(
        model=speaking.model.name, input=ASK, tools=FLAT_TOOLS, tool_choice=choice, max_output_tokens=200
    )
    calls = [item for item in answer.output if item.type == "function_call"]
    assert [call.name for call in calls] == [
        call["function"]["name"] for call in expected.get("tool_calls", [])
    ]
    assert answer.output_text == (expected["content"] or "")
    published(answer)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": "x", "y": 1}]}, "input[0].y"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0].call_id"),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]},
            "input[0].arguments",
        ),
        ({"input": "a" * 2048}, "input"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"tools": []}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "objct"}}}}, "text.format.schema"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "conv_1"}, "conversation"),
    ],
)  # fmt: skip
def test_a_bad_field_is_named(served_url: str, tiny_torch: Model, fields: Any, param: str) -> None:
    body = {"model": tiny_torch.name, "input": "hi", "max_output_tokens": 1, **fields}
    response = httpx.post(f"{served_url}/v1/responses", json=body)
    assert response.status_code == 400
    error = response.json()
    assert faults("openai_chat", "ErrorResponse", error) == []
    assert error["error"]["param"].startswith(param)
    assert error["error"]["message"]


def test_what_a_tool_is_is_told_back(speaking: Speaking) -> None:
    speaking.will_say("Yes.", ASK, tools=[WEATHER])
    answer = speaking.client.responses.create(
        model=speaking.model.name, input=ASK, tools=FLAT_TOOLS[:1], metadata={"a": "b"}
    )
    [tool] = answer.tools
    assert tool.to_dict() == {
        **FLAT_TOOLS[0],
        "description": WEATHER["function"]["description"],
    }
    assert answer.metadata == {"a": "b"}
    assert answer.store is False  # type: ignore[attr-defined]
