"""Rows under a grammar, through the whole engine: whatever a random model at a high temperature says is valid, and the
same on every path.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from grammar_oracle import accepts, begins

from tokenline.client import Model, request_of
from tokenline.decode.grammar import Grammar
from tokenline.decode.grammar_source import schema_grammar, source_of
from tokenline.errors import RequestError

PROMPT = "A record:"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 2},
        "kind": {"enum": ["é", "🎉", None]},
        "next": {"anyOf": [{"$ref": "#/$defs/next"}, {"type": "null"}]},
    },
    "required": ["name", "sizes", "kind", "next"],
    "additionalProperties": False,
    "$defs": {"next": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "additionalProperties": False}},
}  # fmt: skip
ASKED: dict[str, Any] = {"json_schema": SCHEMA, "max_tokens": 200, "temperature": 1.5}


@pytest.mark.parametrize("seed", range(12))
def test_every_answer_that_ended_is_valid(tiny: Model, seed: int) -> None:
    result = tiny.generate(PROMPT, seed=seed, **ASKED)
    assert (result["finish_cause"], result["finish_reason"]) == ("StructuredStop", "stop")
    assert jsonschema_rs.is_valid(SCHEMA, json.loads(result["text"]))
    assert accepts(source_of(schema_grammar(SCHEMA)), result["text"].encode())
    assert result["manifest"]["grammar_hash"]


@pytest.mark.parametrize("seed", range(4))
def test_any_json_object_is_one(tiny: Model, seed: int) -> None:
    result = tiny.generate(PROMPT, seed=seed, json_object=True, max_tokens=120, temperature=1.0)
    if result["finish_reason"] == "stop":
        assert isinstance(json.loads(result["text"]), dict)
    else:
        said = b"".join(map(tiny.tokenizer.token_bytes, result["token_ids"]))
        assert begins(source_of(schema_grammar({"type": "object"})), said)
    assert result["text"].startswith("{")


def test_seeds_say_different_things(tiny: Model) -> None:
    assert len({tiny.generate(PROMPT, seed=seed, **ASKED)["text"] for seed in range(6)}) == 6


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.0},
        {"repetition_penalty": 1.3, "penalty_window": 8},
        {"dry_multiplier": 1.0, "dry_breakers": []},
        {"mirostat": 2, "mirostat_tau": 3.0},
        {"typical_p": 0.5, "top_p": 0.9, "min_p": 0.01},
        {"logprobs": 4},
    ],
    ids=lambda settings: next(iter(settings), "plain"),
)
def test_one_stream_on_every_path(
    tiny: Model, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold, after a hit, streamed, synchronous, among ungrammared neighbours: the same tokens, and always valid."""
    asked = {**ASKED, "seed": 5, **settings}
    tiny.reset_cache()
    cold = tiny.generate(PROMPT, **asked)
    if cold["finish_reason"] == "stop":
        assert jsonschema_rs.is_valid(SCHEMA, json.loads(cold["text"]))
    else:  # penalties can keep a model from ever closing a string
        assert cold["finish_reason"] == "length"
    hit = tiny.generate(PROMPT, **asked)
    assert hit["usage"]["cached_tokens"] > 0
    events = list(tiny.stream(PROMPT, **asked))
    assert "".join(event.text for event in events) == cold["text"]
    plain = {"max_tokens": 30, "temperature": 1.0, "seed": 9, "ignore_eos": True}
    alone = [tiny.generate(prompt, **plain)["token_ids"] for prompt in ("x", "yy")]
    neighbours = [tiny.submit(request_of(prompt, **plain)) for prompt in ("x", "yy")]
    next(iter(neighbours[0]))
    among = tiny.submit(request_of(PROMPT, **asked)).result()
    assert among["counters"]["max_rows"] == 3
    assert [each.result()["token_ids"] for each in neighbours] == alone
    monkeypatch.setattr(tiny._engine, "pipelined", False)
    synchronous = tiny.generate(PROMPT, **asked)
    for other in (hit, events[-1].result, among, synchronous):
        assert (other["token_ids"], other["text"], other["finish_cause"]) == (
            cold["token_ids"],
            cold["text"],
            cold["finish_cause"],
        )
        assert other["logprobs"] is None or np.allclose(
            [entry["logprob"] for entry in other["logprobs"]],
            [entry["logprob"] for entry in cold["logprobs"]],
            atol=1e-4,
        )


def test_rows_under_different_grammars_share_a_batch(tiny: Model) -> None:
    asked = [
        {"regex": "[ab]{12}"},
        {"choice": ["yes indeed", "not at all"]},
        {"grammar": "start: /[0-9]/ /[x-z]/+", "max_tokens": 12},
        {"json_schema": SCHEMA},
    ]
    requests = [
        {"temperature": 1.0, "seed": seed, "max_tokens": 200, **each} for seed, each in enumerate(asked)
    ]
    alone = [tiny.generate(PROMPT, **request) for request in requests]
    together = [tiny.submit(request_of(PROMPT, **request)) for request in requests]
    said = [each.result() for each in together]
    assert [result["token_ids"] for result in said] == [result["token_ids"] for result in alone]
    assert max(result["counters"]["max_rows"] for result in said) >= 3
    assert set(said[0]["text"]) <= set("ab")
    assert said[1]["text"] in ("yes indeed", "not at all")
    assert said[2]["text"][0].isdigit()
    assert set(said[2]["text"][1:]) <= set("xyz")


def test_logprobs_are_of_what_the_grammar_left_and_raw_ones_are_not(tiny: Model) -> None:
    asked = {"regex": "[ab]{6}", "logprobs": 5, "seed": 1, "temperature": 1.0}
    processed, raw = (
        tiny.generate(PROMPT, **asked, logprobs_mode=mode)["logprobs"] for mode in ("processed", "raw")
    )
    for entry, unmasked in zip(processed, raw, strict=True):
        likely = [top for top in entry["top_logprobs"] if top["logprob"] > -1e30]
        assert {top["token"] for top in likely} <= {"a", "b"}
        assert sum(np.exp(top["logprob"]) for top in likely) == pytest.approx(1, abs=1e-5)
        assert unmasked["token_id"] == entry["token_id"]
        assert unmasked["logprob"] < entry["logprob"]


def test_raw_logprobs_are_the_models_own(tiny: Model) -> None:
    """Teacher-forced by `logits`, which knows of no grammar."""
    result = tiny.generate(PROMPT, regex="[ab]{6}", logprobs=0, logprobs_mode="raw", seed=1, temperature=1.0)
    tokens = [*result["prompt_token_ids"], *result["token_ids"]]
    logits = tiny.logits(tokens)[len(result["prompt_token_ids"]) - 1 : -1].astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    logprobs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    expected = logprobs[np.arange(len(result["token_ids"])), result["token_ids"]]
    assert [entry["logprob"] for entry in result["logprobs"]] == pytest.approx(expected, abs=1e-4)


def test_greedy_under_a_grammar_is_the_largest_allowed_logit(tiny: Model) -> None:
    """Stepped on the host: one forward over all tokens so far, and the letters that the expression allows."""
    result = tiny.generate(PROMPT, regex="[a-z]{8}")
    tokens = list(result["prompt_token_ids"])
    letters = [tiny.tokenizer.encode(letter)[0] for letter in "abcdefghijklmnopqrstuvwxyz"]
    for token in result["token_ids"]:
        last = tiny.logits(tokens)[-1]
        assert token == letters[int(last[letters].argmax())]
        tokens.append(token)
    assert len(result["text"]) == 8


@pytest.mark.parametrize(
    ("asked", "cause", "text"),
    [
        ({"regex": "a{5}"}, "StructuredStop", "aaaaa"),
        ({"regex": "a{5}", "max_tokens": 5}, "StructuredStop", "aaaaa"),
        ({"regex": "a{5}", "max_tokens": 4}, "Length", "aaaa"),
        ({"regex": "aaabaa", "stop": "b"}, "StopSequence", "aaa"),
        ({"regex": "aaab", "stop": "b"}, "StopSequence", "aaa"),
        ({"regex": "a*", "mask_eos": True, "max_tokens": 7}, "Length", "aaaaaaa"),
        ({"regex": "a?", "allowed_tokens": [258]}, "Eos", ""),
    ],
)
def test_what_ends_a_row(tiny: Model, asked: dict[str, Any], cause: str, text: str) -> None:
    result = tiny.generate(PROMPT, **asked)
    assert (result["finish_cause"], result["text"]) == (cause, text)


def test_a_row_whose_every_token_would_be_masked_is_refused(tiny: Model) -> None:
    with pytest.raises(RequestError, match="regex and allowed_tokens exclude each other"):
        tiny.generate(PROMPT, regex="[0-9]+", allowed_tokens=[1])


def test_a_grammar_that_is_given_up_ends_its_row_and_no_other(
    tiny: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    [a], [b] = tiny.tokenizer.encode("A"), tiny.tokenizer.encode("B")
    advance = Grammar.advance
    monkeypatch.setattr(Grammar, "advance", lambda self, token: advance(self, b if token == a else token))
    healthy = tiny.submit(request_of(PROMPT, regex="[bc]{30}"))
    broken = tiny.generate(PROMPT, regex="AAAA")
    assert broken["finish_cause"] == "Error"
    assert broken["error"].startswith(
        "what regex asks for leaves no token to go on with (the grammar was given up"
    )
    assert broken["error_param"] == "regex"
    assert healthy.result()["finish_cause"] == "StructuredStop"


def test_a_grammars_draw_waits_and_its_forward_does_not(tiny: Model) -> None:
    """One read per token; the forward after the last one was submitted ahead: nothing can know that it is the last."""
    result = tiny.generate(PROMPT, regex="a{9}")
    assert result["counters"]["host_reads"] == 9
    assert result["counters"]["decode_forwards"] == 9


@pytest.mark.parametrize(
    ("asked", "param", "what"),
    [
        ({"json_schema": {"type": "objct"}}, "json_schema", "Invalid type: objct, at $:"),
        ({"json_schema": {"properties": {"a": {"items": {"anyOf": [{}, {"format": "bogus"}]}}}}}, "json_schema",
         "Unknown format: bogus, at $.properties.a.items.anyOf[1]:"),
        ({"json_schema": {"$defs": {"x": {"type": "str"}}, "properties": {"a": {"$ref": "#/$defs/x"}}}}, "json_schema",
         "Invalid type: str, at $.properties.a:"),
        ({"json_schema": {"allOf": [{"uniqueItems": True}]}}, "json_schema", "uniqueItems"),
        ({"json_schema": {"type": "string", "pattern": "("}}, "json_schema", "unclosed group, at $:"),
        ({"json_schema": {"type": "string", "minLength": 2, "maxLength": 1}}, "json_schema", "Unsatisfiable"),
        ({"json_schema": [1]}, "json_schema", "Expected"),
        ({"regex": "(a"}, "regex", "regex: unclosed group:"),
        ({"regex": "(?=a)"}, "regex", "look-around"),
        ({"regex": ""}, "regex", "regex is empty"),
        ({"choice": []}, "choice", "choice is empty"),
        ({"choice": ["a", ""]}, "choice", "a choice is empty"),
        ({"grammar": "start: b"}, "grammar", 'unknown name: "b"'),
        ({"grammar": 'strt: "b"'}, "grammar", "no start rule"),
        ({"regex": "a", "choice": ["b"]}, "choice", "regex and choice are both given: give one"),
        ({"regex": "a", "ignore_eos": True}, "ignore_eos", "ignore_eos goes on past the end"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_grammar(tiny_torch: Model, asked: dict[str, Any], param: str, what: str) -> None:
    with pytest.raises(RequestError) as caught:
        tiny_torch.generate(PROMPT, **asked)
    assert caught.value.param == param
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.mend


def test_without_llguidance_only_what_needs_it_is_refused(
    tiny_torch: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    assert tiny_torch.generate(PROMPT, max_tokens=2)["finish_reason"] == "length"
    with pytest.raises(
        RequestError, match="llguidance, which is not installed: pip install llguidance"
    ) as caught:
        tiny_torch.generate(PROMPT, regex="a")
    assert caught.value.param == "regex"
