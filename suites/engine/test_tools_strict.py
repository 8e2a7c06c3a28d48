"""Calls and answers that a grammar holds a speaking model to: what is valid stays, and nothing else is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tokenizers
from speaking import (
    ARGUMENTS,
    ASK,
    CALL,
    SAID,
    STOP,
    TEMPLATE,
    TOOLS,
    WEATHER,
    Speaking,
    message_of,
    without_ids,
)
from toy_models import Spoken, save_spoken

from tokenline.client import Model
from tokenline.models import FAMILIES

STRICT: dict[str, Any] = {
    "type": "function",
    "function": {**WEATHER["function"], "strict": True, "parameters": {
        **WEATHER["function"]["parameters"], "additionalProperties": False}},
}  # fmt: skip


def test_a_strict_function_is_called_by_its_schema_and_text_stays_free(speaking: Speaking) -> None:
    """The script writes `days` as text; under `strict` that cannot be drawn, and without it is."""
    script = '<tool_call>\n{"name": "weather", "arguments": {"city": "O", "days": "2"}}\n</tool_call>'
    speaking.will_say("Well… " + script, ASK, tools=[STRICT, STOP])
    strict = speaking.model.generate(messages=ASK, tools=[STRICT, STOP], max_tokens=120)
    kept = "Well… " + script[: script.index('"2"')]
    assert strict["text"].startswith(kept)
    assert not strict["text"].startswith(kept + '"')
    speaking.will_say("Well… " + script, ASK, tools=TOOLS)
    free = speaking.model.generate(messages=ASK, tools=TOOLS)
    assert free["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "O", "days": "2"}'


@pytest.mark.parametrize(
    "said", ["plain", "call", "text and call", "parallel", "thoughts", "thoughts and call", "unclosed"]
)
def test_what_is_valid_is_not_changed_by_strict(speaking: Speaking, said: str) -> None:
    text, content, reasoning, calls = SAID[said]
    text = text.replace('"name":"stop","arguments":{}', '"name": "stop", "arguments": {}').replace(
        "<tool_call>{", "<tool_call>\n{").replace("}</tool_call>", "}\n</tool_call>")  # fmt: skip
    speaking.will_say(text, ASK, tools=[STRICT, STOP])
    result = speaking.model.generate(messages=ASK, tools=[STRICT, STOP])
    assert result["text"] == text
    assert without_ids(result["message"]) == message_of(content, reasoning, calls)


def test_arguments_of_a_strict_call_stream_in_pieces(speaking: Speaking) -> None:
    speaking.will_say(CALL, ASK, tools=[STRICT])
    deltas = [event.delta for event in speaking.model.stream(messages=ASK, tools=[STRICT]) if event.delta]
    pieces = [delta["tool_calls"][0]["function"]["arguments"] for delta in deltas]
    assert "".join(pieces) == ARGUMENTS
    assert pieces[-1] == "}"
    assert len(pieces) == len(ARGUMENTS) + 1  # a byte a token; the name comes first, alone


def test_thoughts_come_before_what_a_grammar_wants(speaking: Speaking) -> None:
    asked: dict[str, Any] = {"json_schema": {"type": "array", "items": {"type": "integer"}}}
    for before, kwargs in [("<think>\nhm <b> {", {}), ("hm <b> {", {"think": True})]:
        variables = {"chat_template_kwargs": kwargs}
        speaking.will_say(f"{before}\n</think>\n\n[1, 2]", ASK, **variables)
        result = speaking.model.generate(messages=ASK, **asked, **variables)
        assert result["message"] == {
            "role": "assistant",
            "content": "[1, 2]",
            "reasoning_content": "hm <b> {",
        }
        assert result["finish_cause"] == "StructuredStop"
    speaking.will_say("[7]", ASK)
    assert speaking.model.generate(messages=ASK, **asked)["message"]["content"] == "[7]"


def test_a_thought_may_go_on_for_ever_where_text_is_free(speaking: Speaking) -> None:
    """Under a strict function as without one; but where a call is required, the answer does not end before it."""
    for kwargs, before in (({}, "<think>"), ({"think": True}, "")):
        asked: dict[str, Any] = {"tools": [STRICT], "chat_template_kwargs": kwargs}
        speaking.will_say(before + "hm", ASK, **asked)
        result = speaking.model.generate(messages=ASK, **asked)
        assert (result["message"]["reasoning_content"], result["finish_cause"]) == ("hm", "Eos")
        forced = speaking.model.generate(messages=ASK, tool_choice="required", max_tokens=30, **asked)
        assert forced["finish_cause"] == "Length"


@pytest.mark.parametrize("before", ["", "<think>look</think>\n\n"])
def test_a_required_call_after_thoughts(speaking: Speaking, before: str) -> None:
    speaking.will_say(before + CALL, ASK, tools=TOOLS)
    result = speaking.model.generate(
        messages=ASK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False
    )
    assert without_ids(result["message"]) == message_of(
        None, "look" if before else None, [("weather", ARGUMENTS)]
    )
    assert result["finish_cause"] == "StructuredStop"


@pytest.mark.parametrize("text", ["[1, 2]", CALL])
def test_an_answer_of_a_schema_or_a_call(speaking: Speaking, text: str) -> None:
    """A response format beside tools: the model chooses between the two, and nothing else is possible."""
    asked: dict[str, Any] = {"json_schema": {"type": "array"}, "tools": TOOLS}
    speaking.will_say(text, ASK, **asked)
    assert speaking.model.generate(messages=ASK, **asked)["text"] == text
    speaking.will_say("Hello", ASK, **asked)
    assert speaking.model.generate(messages=ASK, **asked, max_tokens=1)["text"] in ("[", "<")


@pytest.fixture(scope="module", params=[True, False], ids=["special", "added"])
def marked(
    request: pytest.FixtureRequest,
    byte_tokenizer: tokenizers.Tokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Speaking]:
    """The same model where each mark is one token, special or merely added, as checkpoints have them."""
    copy = tokenizers.Tokenizer.from_str(byte_tokenizer.to_str())
    marks = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    copy.add_tokens([tokenizers.AddedToken(mark, special=request.param, normalized=False) for mark in marks])
    path = save_spoken(tmp_path_factory.mktemp("marked") / "marked", copy, TEMPLATE, "<|im_end|>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "spoken", Spoken)
        with Model(str(path), backend="torch", dtype="float32", threads=1) as model:
            yield Speaking(model, "http://127.0.0.1:9")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("said", SAID)
def test_marks_that_are_one_token(marked: Speaking, said: str, strict: bool) -> None:
    text, content, reasoning, calls = SAID[said]
    if strict and said in ("malformed", "unknown", "parallel"):
        return  # a grammar lets none of these be written so
    tools = [STRICT, STOP] if strict else TOOLS
    text = text.replace("<tool_call>{", "<tool_call>\n{")
    marked.will_say(text, ASK, tools=tools)
    result = marked.model.generate(messages=ASK, tools=tools)
    assert len(result["token_ids"]) < len(text.encode()) or "<" not in text
    assert result["text"] == text
    content = content if content is None else content.replace("<tool_call>{", "<tool_call>\n{")
    assert without_ids(result["message"]) == message_of(content, reasoning, calls)


def test_a_required_call_where_marks_are_one_token(marked: Speaking) -> None:
    marked.will_say(f"<think>look</think>\n{CALL}", ASK, tools=TOOLS)
    asked: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    result = marked.model.generate(messages=ASK, **asked)
    assert without_ids(result["message"]) == message_of(None, "look", [("weather", ARGUMENTS)])
    assert result["finish_cause"] == "StructuredStop"


def test_a_special_mark_is_no_text_where_nothing_is_taken_apart(marked: Speaking) -> None:
    """A prompt that is continued has no message, and special tokens are no text in it."""
    result = marked.model.generate(messages=ASK, reasoning_format="none", max_tokens=1)
    assert result["message"]["content"] == result["text"]
    special = [token for token, name in marked.model.tokenizer.special_tokens.items() if name == "<think>"]
    marked.model._worker.call(lambda: marked.model._engine._model.say(2, [*special, 65, 66])).result()
    assert len(marked.model.generate([1, 2], max_tokens=2 + len(special))["text"]) == 2
