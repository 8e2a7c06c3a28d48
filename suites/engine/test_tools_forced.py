"""Calls and answers that a grammar holds a random model to, read by OpenAI's client and by pydantic."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
import openai
import pydantic
import pytest
from serving import serving

from tokenline.cli import main
from tokenline.client import Model

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
TEMPLATES = {
    "tagged": "{{ tools | tojson if tools }} <tool_call>" + CHATML,
    "bare": '{{ tools | tojson if tools }} {"name": …, "parameters": …}' + CHATML,
}
ASK: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]


class Weather(pydantic.BaseModel):
    """The weather of a place."""

    city: Literal["Oslo", "São Paulo"]
    days: int = pydantic.Field(ge=0, le=99)
    units: list[Literal["C", "F"]] = pydantic.Field(max_length=2)


class Stop(pydantic.BaseModel):
    """Nothing more."""


MODELS: dict[str, type[pydantic.BaseModel]] = {"Weather": Weather, "Stop": Stop}
TOOLS: list[Any] = [openai.pydantic_function_tool(Weather), openai.pydantic_function_tool(Stop)]
DRAWN: dict[str, Any] = {"max_tokens": 400, "temperature": 1.3}


@pytest.fixture(scope="module")
def models(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Model]]:
    """The random tiny llama under each kind of template."""
    loaded = {}
    for name, template in TEMPLATES.items():
        path = tmp_path_factory.mktemp("tools") / name
        shutil.copytree(tiny_checkpoint, path)
        (path / "chat_template.jinja").write_text(template, encoding="utf-8")
        loaded[name] = Model(str(path), backend="torch", dtype="float32", threads=1)
    yield loaded
    for model in loaded.values():
        model.close()


@pytest.fixture(scope="module")
def client(models: dict[str, Model]) -> Iterator[openai.OpenAI]:
    with serving(models["tagged"]) as url:
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def checked(result: dict[str, Any], calls: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The calls, each valid by its function's schema."""
    if calls is None:
        assert result["finish_reason"] == "tool_calls"
        calls = result["message"]["tool_calls"]
    for call in calls:
        [tool] = [tool for tool in TOOLS if tool["function"]["name"] == call["function"]["name"]]
        arguments = json.loads(call["function"]["arguments"])
        assert jsonschema_rs.is_valid(tool["function"]["parameters"], arguments)
    return calls


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("one", [False, True], ids=["any", "one"])
@pytest.mark.parametrize("seed", range(3))
def test_a_required_call_is_one(models: dict[str, Model], template: str, one: bool, seed: int) -> None:
    choice: Any = {"type": "function", "function": {"name": "Weather"}} if one else "required"
    result = models[template].generate(messages=ASK, tools=TOOLS, tool_choice=choice, seed=seed, **DRAWN)
    calls = checked(result)
    assert result["message"]["content"] is None
    if one:
        assert [call["function"]["name"] for call in calls] == ["Weather"]
        assert result["finish_cause"] == "StructuredStop"


@pytest.mark.parametrize("template", TEMPLATES)
def test_calls_may_be_parallel_or_not(models: dict[str, Model], template: str) -> None:
    """A bias for what stands between two calls makes a random model go on, until its tokens run out in one."""
    model = models[template]
    between = model.tokenizer.encode("\n" if template == "tagged" else ";")
    named = {"tool_choice": "required", "seed": 1, **DRAWN}
    asked: dict[str, Any] = {"messages": ASK, "tools": TOOLS[1:], **named}
    asked["logit_bias"] = dict.fromkeys(between, 30.0)
    result = model.generate(**asked)
    several = result["message"]["tool_calls"]
    checked(result, several[:-1])
    assert len(several) > 2
    assert len({call["id"] for call in several}) == len(several)
    assert len(checked(model.generate(**asked, parallel_tool_calls=False))) == 1


@pytest.mark.parametrize("seed", range(3))
def test_the_stream_of_a_forced_call_is_the_call(
    client: openai.OpenAI, models: dict[str, Model], seed: int
) -> None:
    """OpenAI's accumulator joins the pieces; its parser reads them with the models that the tools were made of."""
    model = models["tagged"]
    expected = model.generate(messages=ASK, tools=TOOLS, tool_choice="required", seed=seed, **DRAWN)
    asked: dict[str, Any] = {"model": model.name, "messages": ASK, "tools": TOOLS, "tool_choice": "required"}
    pieces: dict[int, list[str]] = {}
    with client.chat.completions.stream(**asked, seed=seed, **DRAWN) as stream:
        for event in stream:
            if event.type == "chunk" and event.chunk.choices:
                for told in event.chunk.choices[0].delta.tool_calls or ():
                    assert told.function is not None
                    pieces.setdefault(told.index, []).append(told.function.arguments or "")
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert [call.id for call in message.tool_calls] == [
        call["id"] for call in expected["message"]["tool_calls"]
    ]
    for index, (call, ours) in enumerate(
        zip(message.tool_calls, expected["message"]["tool_calls"], strict=True)
    ):
        assert call.function.arguments == ours["function"]["arguments"] == "".join(pieces[index])
        assert isinstance(call.function.parsed_arguments, MODELS[call.function.name])
        assert len(pieces[index]) > 1 or call.function.arguments == "{}"


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_of_a_schema_is_parsed_by_openais_client(
    client: openai.OpenAI, models: dict[str, Model], seed: int
) -> None:
    model = models["tagged"]
    answer = client.chat.completions.parse(
        model=model.name, messages=ASK, response_format=Weather, seed=seed, **DRAWN
    ).choices[0]
    assert isinstance(answer.message.parsed, Weather)
    assert answer.finish_reason == "stop"
    schema = openai.pydantic_function_tool(Weather)["function"]["parameters"]
    said = model.generate(messages=ASK, json_schema=schema, seed=seed, **DRAWN)["message"]["content"]
    assert jsonschema_rs.is_valid(schema, json.loads(said))


def test_response_formats_are_the_requests_fields(client: openai.OpenAI, models: dict[str, Model]) -> None:
    """One text through the server's spelling, Python's and the server's own fields; on both endpoints."""
    model = models["tagged"]
    schema = {"type": "array", "items": {"enum": ["é", 1, None]}, "minItems": 2, "maxItems": 4}
    ours: dict[str, Any] = {"max_tokens": 60, "temperature": 1.0, "seed": 4}
    create: Any = client.chat.completions.create
    for spelled, fields in [
        ({"type": "json_schema", "json_schema": {"name": "list", "strict": True, "schema": schema}},
         {"json_schema": schema}),
        ({"type": "json_object"}, {"json_object": True}),
        ({"type": "text"}, {}),
    ]:  # fmt: skip
        expected = model.generate(messages=ASK, **fields, **ours)["text"]
        asked = {"model": model.name, "messages": ASK, **ours}
        assert create(**asked, response_format=spelled).choices[0].message.content == expected
        assert create(**asked, extra_body=fields).choices[0].message.content == expected
        chunks = create(**asked, response_format=spelled, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected
    for fields in (
        {"json_schema": schema},
        {"regex": "[a-f]{9}"},
        {"choice": ["yes", "no"]},
        {"grammar": 'start: "é"+'},
    ):
        expected = model.generate("A list:", **fields, **ours)["text"]
        answer = client.completions.create(model=model.name, prompt="A list:", extra_body=fields, **ours)
        assert answer.choices[0].text == expected


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (
            ["--json-schema", '{"type": "integer", "maximum": 99}'],
            {"json_schema": {"type": "integer", "maximum": 99}},
        ),
        (["--json-object"], {"json_object": True}),
        (["--regex", "[a-f]{9}"], {"regex": "[a-f]{9}"}),
        (["--choice", "yes", "--choice", "né"], {"choice": ["yes", "né"]}),
        (["--grammar", 'start: "é" /[0-9]/'], {"grammar": 'start: "é" /[0-9]/'}),
    ],
)
def test_the_command_line_says_the_same(
    models: dict[str, Model], tmp_path: Path, options: list[str], fields: dict[str, Any], capfdbinary: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    model = models["tagged"]
    monkeypatch.setattr(Model, "close", lambda self: None)
    monkeypatch.setattr("tokenline.load", lambda *_, **__: model)
    drawn = ["--temp", "1", "--seed", "4", "-n", "40"]
    in_file = [*options]
    if options[0] in ("--json-schema", "--grammar"):
        (tmp_path / "grammar").write_text(options[1], encoding="utf-8")
        in_file[1] = f"@{tmp_path / 'grammar'}"
    expected = model.generate("A list:", **fields, max_tokens=40, temperature=1.0, seed=4)["text"]
    for given in (options, in_file):
        with pytest.raises(SystemExit):
            main(["generate", "-m", "x", "-p", "A list:", *drawn, *given])
        assert capfdbinary.readouterr() == (expected.encode(), b"")
    expected = model.generate(
        messages=[{"role": "user", "content": "hi"}], **fields, max_tokens=40, temperature=1.0, seed=4
    )["text"]
    with pytest.raises(SystemExit):
        main(["run", "-m", "x", "-p", "hi", *drawn, *options])
    assert capfdbinary.readouterr() == (expected.encode(), b"")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--json-schema", "{"], "--json-schema is not JSON"),
        (["--json-schema", "[]"], "--json-schema is not an object: give an object"),
        (
            ["--json-schema", "@/nowhere"],
            "/nowhere cannot be read (No such file or directory): check the path",
        ),
        (["--regex", "a", "--choice", "b"], "regex and choice are both given: give one"),
        (["--grammar", ""], "grammar is empty: leave it out, or fill it"),
        (["--tools", "{}"], "--tools is not a list: give a list"),
        (["--tools", "[1]"], "tools[0] is no object: write a list of objects"),
        (["--tool-choice", "required"], "a tool is required and none is given: give tools"),
        (["--tool-choice", "rain"], "tool_choice names 'rain', which is none of the tools: give tools"),
        (["--json-object", "--ignore-eos"], "ignore_eos goes on past the end, json_object ends there"),
    ],
)
def test_bad_options_are_one_line_before_a_model_is_loaded(
    options: list[str], line: str, capfdbinary: Any
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "-m", "nowhere", "-p", "x", *options])
    out, err = capfdbinary.readouterr()
    assert (ended.value.code, out, err.count(b"\n")) == (2, b"", 1)
    assert err.decode().startswith(f"tokenline: {line}")


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"type": "xml"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, "response_format.json_schema.name"),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objct"}}},
            "response_format",
        ),
        ("json", "response_format"),
    ],
)
def test_unknown_response_formats_are_named(client: openai.OpenAI, form: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tagged", messages=ASK, extra_body={"response_format": form})
    assert caught.value.param == param


def test_two_constraints_are_refused(client: openai.OpenAI) -> None:
    asked = {"response_format": {"type": "json_object"}, "regex": "a"}
    with pytest.raises(
        openai.BadRequestError, match="response_format and regex are both given: give one"
    ) as caught:
        client.chat.completions.create(model="tagged", messages=ASK, extra_body=asked)
    assert caught.value.param == "response_format"
