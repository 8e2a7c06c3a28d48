"""Tools and thoughts through Python, the server (with OpenAI's client) and the command line: one message on all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
import transformers
from speaking import ARGUMENTS, ASK, CALL, SAID, TEMPLATE, TOOLS, WEATHER, Speaking, message_of, without_ids
from toy_models import Spoken, save_spoken

from tokenline.cli import main
from tokenline.client import Model
from tokenline.errors import RequestError
from tokenline.models import FAMILIES
from tokenline.request import Request


@pytest.mark.parametrize("said", SAID)
def test_one_message_from_python_the_server_and_its_stream(speaking: Speaking, said: str) -> None:
    text, content, reasoning, calls = SAID[said]
    expected = message_of(content, reasoning, calls)
    speaking.will_say(text, ASK, tools=TOOLS)
    result = speaking.model.generate(messages=ASK, tools=TOOLS)
    assert result["text"] == text
    assert without_ids(result["message"]) == expected
    assert result["finish_reason"] == ("tool_calls" if calls else "stop")
    assert result["finish_cause"] == "Eos"

    create = speaking.client.chat.completions.create
    asked: dict[str, Any] = {"model": speaking.model.name, "messages": ASK, "tools": TOOLS}
    whole = create(**asked).choices[0]
    assert without_ids(whole.message.to_dict()) == expected
    assert [call.id for call in whole.message.tool_calls or ()] == [
        call["id"] for call in result["message"].get("tool_calls", ())
    ]
    assert whole.finish_reason == result["finish_reason"]

    # OpenAI's own accumulator joins the deltas.
    with speaking.client.chat.completions.stream(**asked) as stream:
        thoughts = ""
        for event in stream:
            if event.type == "chunk" and event.chunk.choices:
                thoughts += event.chunk.choices[0].delta.to_dict().get("reasoning_content", "")
        joined = stream.get_final_completion().choices[0]
    assert thoughts == (reasoning or "")
    told = without_ids(joined.message.to_dict())
    assert (told["content"] or "", told.get("tool_calls")) == (content or "", expected.get("tool_calls"))
    assert joined.finish_reason == whole.finish_reason


@pytest.mark.parametrize("said", ["text and call", "thoughts", "malformed"])
def test_the_command_line_says_the_same(
    speaking: Speaking,
    spoken_checkpoint: Path,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: Any,
) -> None:
    text, content, reasoning, calls = SAID[said]
    speaking.will_say(text, ASK, tools=TOOLS)
    monkeypatch.setattr("tokenline.load", lambda *_, **__: Unclosing(speaking.model))
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
    for as_json in (True, False):
        arguments = ["run", "-m", "x", "-p", ASK[0]["content"], "--tools", f"@{tmp_path / 'tools.json'}"]
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *(["--json"] if as_json else [])])
        assert ended.value.code == 0
        out = capfdbinary.readouterr().out
        if as_json:
            assert without_ids(json.loads(out)["message"]) == message_of(content, reasoning, calls)
        else:
            assert out.decode() == text


class Unclosing:
    """A loaded model that a command may not close."""

    def __init__(self, model: Model) -> None:
        self.submit = model.submit

    def close(self) -> None:
        """It is used again."""


def test_tool_choice_none_leaves_text_as_it_is(speaking: Speaking) -> None:
    speaking.will_say(CALL, ASK, tools=TOOLS)
    result = speaking.model.generate(messages=ASK, tools=TOOLS, tool_choice="none")
    assert result["message"] == {"role": "assistant", "content": CALL}
    assert result["finish_reason"] == "stop"


def test_reasoning_format_none_leaves_thoughts_where_they_are(speaking: Speaking) -> None:
    text = "<think>a</think>b"
    speaking.will_say(text, ASK)
    assert speaking.model.generate(messages=ASK, reasoning_format="none")["message"]["content"] == text
    assert speaking.model.generate(messages=ASK)["message"]["reasoning_content"] == "a"


def test_a_prompt_that_opens_the_thoughts(speaking: Speaking) -> None:
    asked = {"chat_template_kwargs": {"think": True}}
    speaking.will_say("so it is\n</think>\n\nYes.", ASK, **asked)
    message = speaking.model.generate(messages=ASK, **asked)["message"]
    assert message == {"role": "assistant", "content": "Yes.", "reasoning_content": "so it is"}
    speaking.will_say("never closed", ASK, **asked)
    message = speaking.model.generate(messages=ASK, **asked)["message"]
    assert message == {"role": "assistant", "content": "", "reasoning_content": "never closed"}


def test_an_answer_cut_off_inside_a_call(speaking: Speaking) -> None:
    speaking.will_say(CALL, ASK, tools=TOOLS)
    result = speaking.model.generate(messages=ASK, tools=TOOLS, max_tokens=40)
    assert result["finish_reason"] == "length"
    assert result["message"] == {"role": "assistant", "content": CALL[:40]}


def test_a_conversation_with_calls_goes_back_as_it_came(speaking: Speaking, spoken_checkpoint: Path) -> None:
    """The prompt is what transformers renders; OpenAI's argument texts are objects to a template."""
    speaking.will_say(CALL, ASK, tools=TOOLS)
    answer = speaking.client.chat.completions.create(model=speaking.model.name, messages=ASK, tools=TOOLS)
    message = answer.choices[0].message
    assert message.tool_calls is not None
    turn: list[Any] = [
        *ASK,
        message.to_dict(),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"},
    ]
    asked: dict[str, Any] = {"model": speaking.model.name, "messages": turn, "tools": TOOLS, "max_tokens": 1}
    details = speaking.client.chat.completions.create(**asked, extra_body={"return_details": True})
    oracle = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(spoken_checkpoint / "tokenizer.json"), chat_template=TEMPLATE
    )
    function = {"name": "weather", "arguments": json.loads(ARGUMENTS)}
    rendered = [
        *ASK,
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "content": "rain"},
    ]
    ids = oracle.apply_chat_template(rendered, tools=TOOLS, add_generation_prompt=True, return_dict=False)
    assert details.choices[0].to_dict()["details"]["prompt_token_ids"] == ids  # type: ignore[index]


Refusal = tuple[dict[str, Any], str, str]
REFUSALS: list[Refusal] = [
    ({"tools": [{"type": "code", "function": {"name": "f"}}]}, "tools[0].type", 'only "function" is known'),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "is no object"),
    ({"tools": [WEATHER, {"type": "function", "function": {"name": "a b"}}]}, "tools[1].function.name", "letters"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", "two tools are named 'weather'"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]},
     "tools[0].function.parameters", "no schema of an object"),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {
        "properties": {"a": {"type": "objct"}}}}}]}, "tools[0].function.parameters", "at $.properties.a"),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, "tools[0].function.strict", "true or"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "rain"}}}, "tool_choice",
     "weather, stop"),
    ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice", "names no function"),
    ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice", "always"),
    ({"tool_choice": "required"}, "tool_choice", "give tools"),
    ({"tools": TOOLS, "tool_choice": "required", "json_object": True}, "tool_choice", "leave one of them out"),
    ({"tools": TOOLS, "tool_choice": "required", "ignore_eos": True}, "ignore_eos", "tool_choice ends there"),
    ({"tools": TOOLS, "chat_template_kwargs": {"tools": []}}, "chat_template_kwargs", "twice"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "param", "what"), REFUSALS)
def test_what_is_wrong_with_tools_is_named(
    speaking: Speaking, asked: dict[str, Any], param: str, what: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        speaking.client.chat.completions.create(model=speaking.model.name, messages=ASK, extra_body=asked)
    assert caught.value.param == param
    assert what in caught.value.message
    if asked.get("tool_choice") != "always":
        with pytest.raises(RequestError) as ours:
            speaking.model.generate(messages=ASK, **asked)
        assert (ours.value.param, str(ours.value) in caught.value.message) == (param, True)


def test_a_tool_that_is_no_object_is_named(speaking: Speaking) -> None:
    """From Python alone: the server's bodies hold only objects."""
    asked: Any = {"messages": tuple(ASK), "tools": (WEATHER, 1)}
    with pytest.raises(RequestError, match=r"tools\[1\] is no object") as caught:
        speaking.model.submit(Request(**asked))
    assert caught.value.param == "tools[1]"


def test_a_template_that_takes_no_tools_is_refused(tiny_torch: Model, served_url: str) -> None:
    client = openai.OpenAI(base_url=f"{served_url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError, match="template takes no tools: leave tools out") as caught:
        client.chat.completions.create(model=tiny_torch.name, messages=ASK, tools=TOOLS)
    assert caught.value.param == "tools"
    with pytest.raises(RequestError, match="tools are given with a prompt"):
        tiny_torch.generate("x", tools=TOOLS)


@pytest.mark.parametrize(
    "template", ["{{ tools }}[TOOL_CALLS]", "{{ tools }}<tool_call><function=f></function>"]
)
def test_a_template_whose_calls_are_not_known_is_refused(
    byte_tokenizer: Any, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, "spoken", Spoken)
    path = save_spoken(tmp_path / "other", byte_tokenizer, template, "<|im_end|>")
    with (
        Model(str(path), backend="torch", threads=1) as model,
        pytest.raises(RequestError, match="<tool_call>"),
    ):
        model.generate(messages=ASK, tools=TOOLS)


def test_earlier_calls_that_cannot_be_read_are_named(speaking: Speaking) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "stop", "arguments": "{"}}
    messages: list[Any] = [*ASK, {"role": "assistant", "content": None, "tool_calls": [call]}, *ASK]
    with pytest.raises(openai.BadRequestError) as caught:
        speaking.client.chat.completions.create(model=speaking.model.name, messages=messages)
    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"
