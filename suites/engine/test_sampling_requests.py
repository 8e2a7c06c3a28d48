"""What a request may ask of the sampler: the same from every transport, refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer

from tokenline.cli.answer_options import ConstraintOptions, ToolOptions
from tokenline.cli.options import SamplingOptions, takes_options
from tokenline.client import Model, request_of
from tokenline.errors import RequestError
from tokenline.request import PRESETS, STAGES, LoopDetection, Request, Sampling, validate
from tokenline.server.bodies import ChatBody, CompletionBody
from tokenline.server.parsing import parse
from tokenline.server.protocol import chat_requests, completion_requests

# Field: a value that is not its default, and how the command line spells it.
SETTINGS: dict[str, tuple[Any, list[str]]] = {
    "temperature": (0.7, ["--temp", "0.7"]),
    "dynatemp_range": (0.2, ["--dynatemp-range", "0.2"]),
    "dynatemp_exponent": (1.5, ["--dynatemp-exponent", "1.5"]),
    "top_k": (7, ["--top-k", "7"]),
    "top_p": (0.9, ["--top-p", "0.9"]),
    "min_p": (0.05, ["--min-p", "0.05"]),
    "typical_p": (0.8, ["--typical-p", "0.8"]),
    "top_n_sigma": (1.5, ["--top-n-sigma", "1.5"]),
    "min_keep": (3, ["--min-keep", "3"]),
    "xtc_probability": (0.4, ["--xtc-probability", "0.4"]),
    "xtc_threshold": (0.2, ["--xtc-threshold", "0.2"]),
    "repetition_penalty": (1.2, ["--repetition-penalty", "1.2"]),
    "presence_penalty": (0.3, ["--presence-penalty", "0.3"]),
    "frequency_penalty": (0.4, ["--frequency-penalty", "0.4"]),
    "penalty_window": (12, ["--penalty-window", "12"]),
    "presence_window": (13, ["--presence-window", "13"]),
    "frequency_window": (14, ["--frequency-window", "14"]),
    "dry_multiplier": (0.8, ["--dry-multiplier", "0.8"]),
    "dry_base": (2.0, ["--dry-base", "2"]),
    "dry_allowed_length": (3, ["--dry-allowed-length", "3"]),
    "dry_window": (99, ["--dry-window", "99"]),
    "dry_breakers": (["x", "\n"], ["--dry-breaker", "x", "--dry-breaker", "\n"]),
    "mirostat": (2, ["--mirostat", "2"]),
    "mirostat_tau": (4.0, ["--mirostat-tau", "4"]),
    "mirostat_eta": (0.2, ["--mirostat-eta", "0.2"]),
    "logit_bias": ({5: -3.0}, ["--logit-bias", "5=-3"]),
    "banned_tokens": ([4, 6], ["--banned-tokens", "4,6"]),
    "allowed_tokens": ([8, 9], ["--allowed-tokens", "8,9"]),
    "mask_eos": (True, ["--mask-eos"]),
    "samplers": (["temperature", "top_k"], ["--samplers", "temperature,top_k"]),
    "seed": (31, ["--seed", "31"]),
    "max_tokens": (17, ["-n", "17"]),
    "max_time_ms": (500, ["--max-time-ms", "500"]),
    "min_indent": (4, ["--min-indent", "4"]),
    "stop": (["a", "b"], ["--stop", "a", "--stop", "b"]),
    "logprobs": (3, ["--logprobs", "3"]),
    "logprobs_mode": ("raw", ["--logprobs-mode", "raw"]),
    "prompt_logprobs": (2, ["--prompt-logprobs", "2"]),
    "ignore_eos": (True, ["--ignore-eos"]),
    "loop_detection": (True, ["--loop-detection"]),
    "cache_prompt": (False, ["--no-cache-prompt"]),
    "json_object": (True, ["--json-object"]),
    "json_schema": ({"type": "integer"}, ["--json-schema", '{"type": "integer"}']),
    "regex": ("a+", ["--regex", "a+"]),
    "choice": (("a", "b"), ["--choice", "a", "--choice", "b"]),
    "grammar": ('start: "a"', ["--grammar", 'start: "a"']),
}
MESSAGES = ({"role": "user", "content": "x"},)
FUNCTION = {"type": "function", "function": {"name": "f"}}
# Of conversations only.
CHAT_SETTINGS: dict[str, tuple[Any, list[str]]] = {
    "tools": ((FUNCTION,), ["--tools", json.dumps([FUNCTION])]),
    "tool_choice": (FUNCTION, ["--tool-choice", "f"]),
    "parallel_tool_calls": (False, ["--no-parallel-tool-calls"]),
    "reasoning_format": ("none", ["--reasoning-format", "none"]),
}


def from_command_line(arguments: list[str], *, chat: bool = False) -> Request:
    built: list[Request] = []
    app = typer.Typer()

    @app.command()
    @takes_options
    def command(sampling: SamplingOptions, constraint: ConstraintOptions, tools: ToolOptions) -> None:
        prompt = {"messages": MESSAGES} if chat else {"prompt": "x"}
        given = tools.fields() if chat else {}
        built.append(sampling.request(**prompt, **constraint.fields(), **given))

    app(arguments, standalone_mode=False)
    return built[0]


def from_http(fields: dict[str, Any]) -> Request:
    [request] = completion_requests(parse(json.dumps({"prompt": "x", **fields}).encode(), CompletionBody), {})
    return request


def test_every_field_is_here() -> None:
    prompts = {"prompt", "prompt_token_ids", "messages", "chat_template_kwargs", "sampling"}
    # Among requests that wait, and among adapters: a command runs one, and a client names it as the model.
    served = {"priority", "adapter"}
    assert {*SETTINGS, *CHAT_SETTINGS} == {
        *Sampling.__struct_fields__,
        *Request.__struct_fields__,
    } - prompts - served


def test_a_priority_comes_with_a_body() -> None:
    assert from_http({"priority": -3}) == request_of("x", priority=-3)
    with pytest.raises(RequestError, match="priority 11 is outside") as refused:
        validate(request_of("x", priority=11), None)
    assert refused.value.param == "priority"


@pytest.mark.parametrize("field", SETTINGS)
def test_a_field_means_the_same_from_every_transport(field: str) -> None:
    value, arguments = SETTINGS[field]
    expected = request_of("x", **{field: value})
    default = request_of("x")
    assert expected != default
    assert from_command_line(arguments) == expected
    assert from_http({field: value}) == expected
    assert from_command_line([]) == from_http({}) == default


@pytest.mark.parametrize("field", [*CHAT_SETTINGS, "regex"])
def test_a_field_of_a_conversation_means_the_same_from_every_transport(field: str) -> None:
    value, arguments = {**SETTINGS, **CHAT_SETTINGS}[field]

    def from_chat(fields: dict[str, Any]) -> Request:
        [request] = chat_requests(parse(json.dumps({"messages": MESSAGES, **fields}).encode(), ChatBody), {})
        return request

    expected = request_of(messages=MESSAGES, **{field: value})
    assert expected != request_of(messages=MESSAGES)
    assert from_command_line(arguments, chat=True) == from_chat({field: value}) == expected
    assert from_command_line([], chat=True) == from_chat({}) == request_of(messages=MESSAGES)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_by_name(preset: str) -> None:
    assert from_command_line(["--samplers", preset]).sampling.order == PRESETS[preset]
    assert sorted(PRESETS[preset]) == sorted(STAGES)


def test_the_orders_of_the_presets() -> None:
    """llama.cpp's default chain (common.h: penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature);
    mlx-lm's make_sampler; vLLM's temperature, min-p, top-k, top-p."""
    assert (
        ",".join(PRESETS["llama.cpp"])
        == "penalties,dry,top_n_sigma,top_k,typical_p,top_p,min_p,xtc,temperature"
    )

    def of(preset: str, *stages: str) -> list[str]:
        return [stage for stage in PRESETS[preset] if stage in stages]

    theirs = ["penalties", "top_p", "min_p", "xtc", "top_k", "temperature"]
    assert of("mlx-lm", *theirs) == theirs
    theirs = ["penalties", "temperature", "min_p", "top_k", "top_p"]
    assert of("vllm", *theirs) == theirs


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"samplers": "random"}, "samplers"),
        ({"samplers": ["tfs_z"]}, "samplers"),
        ({"samplers": ["top_k", "top_k"]}, "samplers"),
        ({"samplers": ["top_k"], "min_p": 0.1}, "min_p"),
        ({"samplers": ["top_k"], "temperature": 0.5}, "temperature"),
        ({"samplers": [], "presence_penalty": 1}, "presence_penalty"),
        ({"mirostat": 2}, "mirostat"),
        ({"mirostat": 2, "temperature": 1, "top_p": 0.5}, "top_p"),
        ({"mirostat": 3, "temperature": 1}, "mirostat"),
        ({"mirostat_tau": 0}, "mirostat_tau"),
        ({"mirostat_eta": 2}, "mirostat_eta"),
        ({"dynatemp_range": 0.5}, "dynatemp_range"),
        ({"dynatemp_range": -1, "temperature": 1}, "dynatemp_range"),
        ({"dynatemp_exponent": 0}, "dynatemp_exponent"),
        ({"typical_p": 0}, "typical_p"),
        ({"top_n_sigma": -1}, "top_n_sigma"),
        ({"min_keep": 0}, "min_keep"),
        ({"xtc_probability": 1.5}, "xtc_probability"),
        ({"xtc_threshold": 0}, "xtc_threshold"),
        ({"dry_multiplier": float("nan")}, "dry_multiplier"),
        ({"dry_base": 0.5}, "dry_base"),
        ({"dry_allowed_length": 0}, "dry_allowed_length"),
        ({"dry_window": -2}, "dry_window"),
        ({"dry_breakers": [""]}, "dry_breakers"),
        ({"presence_window": -2}, "presence_window"),
        ({"banned_tokens": [-1]}, "banned_tokens"),
        ({"allowed_tokens": [1000]}, "allowed_tokens"),
        ({"allowed_tokens": [3], "banned_tokens": [3]}, "allowed_tokens"),
        ({"max_time_ms": 0}, "max_time_ms"),
        ({"min_indent": -1}, "min_indent"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"logprobs_mode": "both"}, "logprobs_mode"),
    ],
)
def test_what_is_refused_names_its_field(params: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        validate(request_of("x", **params), 300)
    assert caught.value.param == param
    assert caught.value.mend


def test_the_manifest_shows_the_settings_resolved(tiny: Model) -> None:
    told = tiny.generate([1, 2, 3], max_tokens=1, samplers="vllm", presence_window=3, temperature=1.0)
    shown = told["manifest"]["sampling"]
    assert shown["samplers"] == list(PRESETS["vllm"])
    assert (shown["penalty_window"], shown["presence_window"], shown["frequency_window"]) == (64, 3, 64)
    assert shown["dry_breakers"] == ["\n", ":", '"', "*"]
    assert isinstance(shown["seed"], int)
    assert set(shown) == set(Sampling.__struct_fields__)
    json.dumps(told)


def test_loop_detection_settings_by_name() -> None:
    request = from_http({"loop_detection": {"max_period": 3}})
    assert request.loop_detection == LoopDetection(max_period=3)


def test_a_row_that_may_draw_nothing_more_ends_with_an_error_and_no_other_row_does(tiny: Model) -> None:
    neighbour = tiny.submit(request_of([1, 2, 3], max_tokens=30, ignore_eos=True))
    with pytest.raises(RequestError, match="allowed_tokens and mask_eos exclude each other"):
        tiny.generate([4, 5], allowed_tokens=[258], mask_eos=True, max_tokens=5)
    [first], [second] = tiny.tokenizer.encode("b", add_bos=False), tiny.tokenizer.encode("c", add_bos=False)
    failed = tiny.generate([4, 5], choice=["bc"], banned_tokens=[second], max_tokens=5)
    assert (failed["finish_cause"], failed["error_param"]) == ("Error", "choice")
    assert "leaves no token to go on with" in failed["error"]
    assert failed["token_ids"] == [first]
    assert neighbour.result()["finish_cause"] == "Length"
    alone = tiny.generate([1, 2, 3], max_tokens=30, ignore_eos=True)
    assert neighbour.result()["token_ids"] == alone["token_ids"]


def test_a_masked_end_is_never_drawn_and_an_ignored_one_may_be(tiny: Model) -> None:
    """The end of sequence is made certain by a bias: it is drawn and gone past, or the next best is drawn."""
    asked = {"max_tokens": 4, "logit_bias": {258: 100.0}}
    assert tiny.generate([1, 2], **asked)["finish_cause"] == "Eos"
    assert tiny.generate([1, 2], ignore_eos=True, **asked)["token_ids"] == [258] * 4
    masked = tiny.generate([1, 2], mask_eos=True, **asked)
    free = tiny.generate([1, 2], max_tokens=4, mask_eos=True)
    assert masked["token_ids"] == free["token_ids"]
    assert masked["finish_cause"] == "Length"
    assert 258 not in masked["token_ids"]
