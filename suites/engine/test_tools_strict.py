"""Calls and answers that a grammar holds a speaking model to: what is valid stays, and nothing else is said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from speaking import ARGUMENTS, ASK, CALL, SAID, STOP, TOOLS, WEATHER, Speaking, message_of, without_ids

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
