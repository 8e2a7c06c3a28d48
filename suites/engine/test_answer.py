"""Messages taken apart: every cut of one text gives one message, its deltas add up to it, and no brace is lost."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenline.text.answer import Answer, Tools
from tokenline.text.tool_format import BARE, TAGGED, ToolFormat, call_of, conversation, format_of

NAMES = ("weather", "stop")


def tools(format: ToolFormat = TAGGED, *, assured: bool = False) -> Tools:
    return Tools(format, NAMES, assured, lambda index: f"call_{index}")


def joined(deltas: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """As a client of OpenAI's API joins them."""
    content = reasoning = ""
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        assert all(delta.values()), "a delta carries nothing empty"
        content += delta.get("content", "")
        reasoning += delta.get("reasoning_content", "")
        for told in delta.get("tool_calls", ()):
            if told["index"] == len(calls):
                calls.append({"id": told["id"], "type": told["type"], "function": {**told["function"]}})
            else:
                assert told.keys() == {"index", "function"}, "an id and a name are told once"
                calls[told["index"]]["function"]["arguments"] += told["function"]["arguments"]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["content"] = content or None
        message["tool_calls"] = calls
    return message


def told(answer: Answer, pieces: list[str], tail: str = "") -> list[dict[str, Any]]:
    return [*(answer.push(piece) for piece in pieces), answer.finish(tail)]


def read(text: str, reasoning: Any = "none", with_tools: Tools | None = None) -> dict[str, Any]:
    answer = Answer(reasoning, with_tools)
    told(answer, [], text)
    return answer.message


def call(name: str, arguments: str, index: int = 0) -> dict[str, Any]:
    return {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}


def cuts(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def pieces_of(data: st.DataObject, text: str) -> list[str]:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool", "<", "</", " ", "\n", "a", "é🎉", "{", "}", '"',
    "\\", "; ", '{"name": "stop", "arguments": {}}', '{"name": "weather", "arguments": {"a": "}\\"</tool_call>"}}',
    '{"name": "stop", "parameters": {"b": [1, {}]}}', '{"name": "other", "arguments": {}}', "NaN",
]  # fmt: skip


@pytest.mark.parametrize("with_tools", [None, tools(), tools(BARE)], ids=["no tools", "tagged", "bare"])
@pytest.mark.parametrize("reasoning", ["none", "possible", "open"])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_every_cut_gives_one_message(reasoning: Any, with_tools: Tools | None, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(FRAGMENTS), max_size=14)))
    answer = Answer(reasoning, with_tools)
    deltas = told(answer, pieces_of(data, text))
    assert answer.message == read(text, reasoning, with_tools) == joined(deltas)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(st.sampled_from('}{"\\<>/ab é🎉\n]['), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("}a\"<", max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
ARGUMENTS = st.dictionaries(st.text('}a"<', max_size=4), JSON, max_size=4)
SAID = st.text(st.sampled_from("ab é🎉.\n}{"), min_size=1, max_size=12).map(str.strip).filter(bool)


def written(format: ToolFormat, name: str, arguments: str) -> str:
    return f'{format.opening}{format.lead}"{name}", "{format.arguments}": {arguments}{format.tail}'


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A text of a known message: thoughts or none, what is said, calls whose arguments are any JSON object."""
    text, message = "", {"role": "assistant", "content": ""}
    if draw(st.booleans()):
        message["reasoning_content"] = draw(SAID)
        text = f"<think>\n{message['reasoning_content']}\n</think>\n\n"
    calls = []
    for part in draw(st.lists(st.none() | st.tuples(st.sampled_from(NAMES), ARGUMENTS), max_size=4)):
        if part is None:
            said = draw(SAID)
            message["content"] += said
            text += said
            continue
        arguments = json.dumps(
            part[1], ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))
        )
        calls.append(call(part[0], arguments, len(calls)))
        text += draw(st.sampled_from(["", "\n", " "])) + written(TAGGED, part[0], arguments)
        text += draw(st.sampled_from(["", "\n\n"]))
    if calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = calls
    return text, message


@pytest.mark.parametrize("assured", [False, True], ids=["whole", "assured"])
@given(made=answers(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_what_was_written_is_read(
    assured: bool, made: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    text, message = made
    answer = Answer("possible", tools(assured=assured))
    deltas = told(answer, pieces_of(data, text))
    assert joined(deltas) == answer.message == message


@pytest.mark.parametrize("format", [TAGGED, BARE], ids=["tagged", "bare"])
@pytest.mark.parametrize("assured", [False, True], ids=["whole", "assured"])
@pytest.mark.parametrize("size", range(1, 120))
def test_no_brace_of_the_arguments_is_lost(format: ToolFormat, assured: bool, size: int) -> None:
    """Every size of chunk, so that the last brace stands at every place in one; two calls, the second right after."""
    first, second = '{"city": "São {Paulo}", "in": {"days": [1, 2]}}', "{}"
    text = written(format, "weather", first) + format.between + written(format, "stop", second)
    answer = Answer("none", tools(format, assured=assured))
    deltas = told(answer, cuts(text, size))
    calls = [call("weather", first, 0), call("stop", second, 1)]
    assert joined(deltas) == answer.message == {"role": "assistant", "content": None, "tool_calls": calls}
    assert json.loads(first)["in"] == {"days": [1, 2]}


def test_assured_arguments_come_in_pieces_and_others_when_the_call_is_whole() -> None:
    arguments = '{"city": "Oslo"}'
    text = written(TAGGED, "weather", arguments)
    for assured in (True, False):
        deltas = told(Answer("none", tools(assured=assured)), list(text))
        calls = [told for delta in deltas for told in delta.get("tool_calls", ())]
        pieces = [told["function"]["arguments"] for told in calls]
        assert pieces == (["", *arguments] if assured else [arguments])
    # The closing brace does not wait for what comes after it.
    answer = Answer("none", tools(assured=True))
    head = text[: text.index(arguments) + len(arguments)]
    assert joined([answer.push(head)])["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>\n",
        "<tool_call>\nhello\n</tool_call>",
        '<tool_call>{"name": "weather"}</tool_call>',
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "stop", "arguments": "{}"}</tool_call>',
        '<tool_call>{"name": "stop", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": "stop", "arguments": {"a": }}</tool_call>',
        '<tool_call>{"name": "stop", "arguments": {}</tool_call>',
        '<tool_call>{"name": "stop", "arguments": {}}} </tool_call>',
        '<tool_call>{"name": "stop", "arguments": {"a": "never closed</tool_call>',
        '<tool_call>["stop", {}]</tool_call>',
        'Use <tool_call> like this: <tool_call>{…}</tool_call>.',
    ],
)  # fmt: skip
def test_a_malformed_call_is_text(text: str) -> None:
    for size in range(1, len(text) + 1):
        answer = Answer("none", tools())
        deltas = told(answer, cuts(text, size))
        assert answer.message == joined(deltas) == {"role": "assistant", "content": text}


def test_a_call_after_a_malformed_one_is_a_call() -> None:
    text = 'no <tool_call>{"name": 1}</tool_call> <tool_call>{"name": "stop", "arguments": {}}</tool_call>'
    message = read(text, with_tools=tools())
    assert message["content"] == 'no <tool_call>{"name": 1}</tool_call>'
    assert message["tool_calls"] == [call("stop", "{}")]


def test_a_turn_that_ends_without_the_closing_mark_still_called() -> None:
    assert read('<tool_call>{"name": "stop", "arguments": {}}', with_tools=tools())["tool_calls"] == [
        call("stop", "{}")
    ]


def test_an_assured_call_that_is_cut_off_stays_as_far_as_it_got() -> None:
    """As OpenAI's API has it where the tokens run out; and one of which nothing was told yet was none."""
    text = written(TAGGED, "weather", '{"city": "Oslo"}')
    shown = text[: text.index('{"city') + 4]
    assert read(shown, with_tools=tools(assured=True))["tool_calls"] == [call("weather", '{"ci')]
    cut = read(text[:30], with_tools=tools(assured=True))
    assert cut == {"role": "assistant", "content": text[:30]}


@pytest.mark.parametrize(
    ("reasoning", "text", "thought", "said"),
    [
        ("possible", "<think>a b</think>c", "a b", "c"),
        ("possible", "\n <think>\na\n</think>\n\nc \n", "a", "c \n"),
        ("possible", "c<think>a</think>", "", "c<think>a</think>"),
        ("possible", "c </think> d", "", "c </think> d"),
        ("possible", "<think>never closed ", "never closed", ""),
        ("possible", "<think></think>\n\nc", "", "c"),
        ("possible", "<thin", "", "<thin"),
        ("possible", "", "", ""),
        ("open", "a</think>c", "a", "c"),
        ("open", "\na <b> </ </thin\n</think>c</think>", "a <b> </ </thin", "c</think>"),
        ("open", "never closed", "never closed", ""),
        ("none", "<think>a</think>c", "", "<think>a</think>c"),
    ],
)
def test_thoughts(reasoning: Any, text: str, thought: str, said: str) -> None:
    for size in range(1, len(text) + 2):
        answer = Answer(reasoning)
        deltas = told(answer, cuts(text, size))
        assert (answer.reasoning, answer.content) == (thought, said)
        assert joined(deltas) == answer.message


def test_thoughts_are_told_as_they_come() -> None:
    answer = Answer("possible")
    assert [answer.push(piece) for piece in ("<think>", "one ", "two", "</th", "ink>", " three")] == [
        {}, {"reasoning_content": "one"}, {"reasoning_content": " two"}, {}, {}, {"content": "three"},
    ]  # fmt: skip


def test_a_call_inside_thoughts_is_a_thought() -> None:
    inner = '<tool_call>{"name": "stop", "arguments": {}}</tool_call>'
    message = read(f"<think>{inner}</think>done", "possible", tools())
    assert message == {"role": "assistant", "content": "done", "reasoning_content": inner}


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ('{"name": "stop", "parameters": {}}', [("stop", "{}")], None),
        (' {"name": "stop", "parameters": {}} ; {"name": "weather", "parameters": {"a": 1}}',
         [("stop", "{}"), ("weather", '{"a": 1}')], None),
        ('{"name": "stop", "parameters": {}} and more', [("stop", "{}")], "and more"),
        ('{"answer": 42}', [], '{"answer": 42}'),
        ('{"name": "stop", "parameters": {', [], '{"name": "stop", "parameters": {'),
        ('Hello {"name": "stop", "parameters": {}}', [], 'Hello {"name": "stop", "parameters": {}}'),
    ],
)  # fmt: skip
def test_bare_calls(text: str, calls: list[tuple[str, str]], content: str | None) -> None:
    for size in range(1, len(text) + 1):
        answer = Answer("none", tools(BARE))
        deltas = told(answer, cuts(text, size))
        expected: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            expected["tool_calls"] = [call(name, given, i) for i, (name, given) in enumerate(calls)]
        assert answer.message == joined(deltas) == expected


@given(name=st.sampled_from(NAMES), arguments=ARGUMENTS, extra=JSON, indent=st.sampled_from([None, 0, 2]))
def test_arguments_are_read_as_they_stand(name: str, arguments: dict, extra: Any, indent: int | None) -> None:
    """The oracle is the json module; order, other members and space do not matter."""
    text = json.dumps({"id": extra, "arguments": arguments, "name": name}, indent=indent)
    found = call_of(text, TAGGED, NAMES)
    assert found is not None
    assert (found.name, json.loads(found.arguments)) == (name, arguments)
    assert found.arguments in text


def test_formats_are_told_by_the_template() -> None:
    assert format_of("… <tool_call>\n{{ tool_call.name }}") is TAGGED
    assert format_of('Respond in the format {"name": function name, "parameters": dictionary}') is BARE
    assert format_of("<tool_call><function=name></function></tool_call>") is None
    assert format_of("[TOOL_CALLS]") is None


def test_earlier_calls_reach_the_template_as_objects() -> None:
    sent = [{"role": "assistant", "tool_calls": [call("stop", '{"a": 1}')]}, {"role": "user", "content": "x"}]
    read_messages, fault = conversation(sent)
    assert fault is None
    assert read_messages[0]["tool_calls"][0]["function"] == {"name": "stop", "arguments": {"a": 1}}
    assert sent[0]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'  # the caller's is left alone
    for broken in ('{"a"', "[1]", "3"):
        _, fault = conversation([{"role": "assistant", "tool_calls": [call("stop", broken)]}])
        assert fault == "messages[0].tool_calls[0].function.arguments"
    assert (
        conversation([{"role": "assistant", "tool_calls": [{"function": {}}]}])[1]
        == "messages[0].tool_calls[0]"
    )
